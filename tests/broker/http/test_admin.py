"""Topics, groups and the cluster over HTTP."""

from typing import Any

import pytest


@pytest.fixture
async def client(start_http: Any, browse: Any) -> Any:
    return browse(await start_http(offsets_topic_num_partitions="1"))


async def test_a_topics_life(client: Any) -> None:
    made = await client.post("/topics", json={"name": "t", "partitions": 2, "configs": {"retention.ms": "1000"}})
    assert (made.status_code, made.headers["location"]) == (201, "/topics/t")
    assert (await client.post("/topics", json={"name": "t"})).json()["error"] == "TOPIC_ALREADY_EXISTS"
    assert (await client.post("/topics", json={"name": "a b"})).status_code == 400
    assert (await client.get("/topics")).json()["topics"] == [{"name": "t", "partitions": 2, "internal": False}]
    described = (await client.get("/topics/t")).json()
    assert described["partitions"][1] == {"partition": 1, "leader": 0, "replicas": [0], "isr": [0]}
    assert (await client.get("/topics/t/configs")).json()["configs"]["retention.ms"] == "1000"
    changed = await client.patch("/topics/t/configs", json={"configs": {"retention.ms": None, "segment.ms": "60000"}})
    assert changed.status_code == 204
    configs = (await client.get("/topics/t/configs")).json()["configs"]
    assert (configs["retention.ms"], configs["segment.ms"]) == ("604800000", "60000")
    refused = await client.patch("/topics/t/configs", json={"configs": {"retention.ms": "soon"}})
    assert (refused.status_code, refused.json()["error"]) == (400, "INVALID_CONFIG")
    assert (await client.delete("/topics/t")).status_code == 204
    assert (await client.get("/topics/t")).json()["error"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert (await client.delete("/topics/t")).status_code == 404


async def test_partitions_are_added_and_never_taken_away(client: Any) -> None:
    await client.post("/topics", json={"name": "t", "partitions": 2})
    assert (await client.patch("/topics/t", json={"partitions": 5})).status_code == 204
    assert len((await client.get("/topics/t")).json()["partitions"]) == 5
    refused = await client.patch("/topics/t", json={"partitions": 3})
    assert (refused.status_code, refused.json()["error"]) == (400, "INVALID_PARTITIONS")
    assert (await client.patch("/topics/none", json={"partitions": 3})).status_code == 404


async def test_settings_of_a_broker_are_changed_and_taken_back(client: Any) -> None:
    wish = {"configs": {"tidemark.log.slow.request.ms": "250"}}
    assert (await client.patch("/brokers/0/configs", json=wish)).status_code == 204
    assert (await client.get("/brokers/0/configs")).json()["configs"]["tidemark.log.slow.request.ms"] == "250"
    back = {"configs": {"tidemark.log.slow.request.ms": None}}
    assert (await client.patch("/brokers/0/configs", json=back)).status_code == 204
    assert (await client.get("/brokers/0/configs")).json()["configs"]["tidemark.log.slow.request.ms"] == "1000"
    assert (await client.patch("/brokers/0/configs", json={"configs": {"node.id": "7"}})).status_code == 400
    assert (await client.get("/brokers/9/configs")).status_code in (400, 404)


async def test_offsets_are_set_to_the_first_record_from_a_time_on(client: Any) -> None:
    await client.post("/topics", json={"name": "t", "partitions": 1})
    records = [{"value": number, "timestamp": 1_700_000_000_000 + number * 1000} for number in range(5)]
    for record in records:
        assert (await client.post("/topics/t/records", json=record)).status_code == 200
    wish = {"topic": "t", "partition": 0, "timestamp": 1_700_000_002_500}
    assert (await client.put("/groups/g/offsets", json={"offsets": [wish]})).status_code == 204
    assert (await client.get("/groups/g/offsets")).json()["offsets"][0]["offset"] == 3
    read = await client.get("/topics/t/partitions/0/records", params={"timestamp": 1_700_000_002_500})
    assert [each["value"] for each in read.json()["records"]] == [3, 4]


ACKS = [("all", 200), (-1, 200), (1, 200), ("1", 200), (0, 204), ("0", 204), ("most", 400)]


@pytest.mark.parametrize(("acks", "status"), ACKS)
async def test_acks_decide_what_is_answered_and_the_record_is_there(client: Any, acks: Any, status: int) -> None:
    await client.post("/topics", json={"name": "t", "partitions": 1})
    answer = await client.post("/topics/t/records", json={"records": [{"value": 1}], "acks": acks})
    assert answer.status_code == status, answer.text
    count = len((await client.get("/topics/t/partitions/0/records")).json()["records"])
    assert count == (status != 400)


async def test_offsets_of_a_group_are_set_and_its_lag_is_told(client: Any) -> None:
    await client.post("/topics", json={"name": "t", "partitions": 1})
    await client.post("/topics/t/records", json=[{"value": number} for number in range(5)])
    wish = {"topic": "t", "partition": 0}
    assert (await client.put("/groups/g/offsets", json={"offsets": [{**wish, "offset": 2}]})).status_code == 204
    told = (await client.get("/groups/g/offsets")).json()
    assert (told["lag"], told["offsets"][0]["offset"], told["offsets"][0]["end_offset"]) == (3, 2, 5)
    await client.put("/groups/g/offsets", json={"offsets": [{**wish, "to": "latest"}]})
    assert (await client.get("/groups/g/offsets")).json()["lag"] == 0
    assert [each["group"] for each in (await client.get("/groups")).json()["groups"]] == ["g"]
    missing = await client.put("/groups/g/offsets", json={"offsets": [{"topic": "t", "partition": 3, "offset": 0}]})
    assert missing.status_code == 404
    url = (await client.post("/groups/g/consumers", json={})).json()["url"]
    await client.put(f"{url}/subscription", json={"topics": ["t"]})
    refused = await client.put("/groups/g/offsets", json={"offsets": [{**wish, "offset": 2}]})
    assert (refused.status_code, "has members" in refused.json()["detail"]) == (409, True)


async def test_the_cluster_is_described(client: Any) -> None:
    told = (await client.get("/cluster")).json()
    assert [each["id"] for each in told["brokers"]] == [0]
    assert told["controller_id"] == 0
