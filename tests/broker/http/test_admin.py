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


async def test_the_cluster_is_described(client: Any) -> None:
    told = (await client.get("/cluster")).json()
    assert [each["id"] for each in told["brokers"]] == [0]
    assert told["controller_id"] == 0
