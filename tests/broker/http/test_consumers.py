"""Consumer instances over HTTP: real members of real groups."""

import asyncio
from typing import Any

import pytest

FAST = {
    "offsets_topic_num_partitions": "1",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_consumer_min_heartbeat_interval_ms": "100",
}


@pytest.fixture
async def node(start_http: Any) -> Any:
    return await start_http(**FAST)


@pytest.fixture
async def client(node: Any, browse: Any) -> Any:
    client = browse(node)
    await client.post("/topics", json={"name": "t", "partitions": 4})
    return client


async def made(client: Any, group: str = "g", topics: Any = ("t",), **options: Any) -> str:
    answer = await client.post(f"/groups/{group}/consumers", json=options)
    assert answer.status_code == 201, answer.text
    url: str = answer.json()["url"]
    assert answer.headers["location"] == url
    subscribed = await client.put(f"{url}/subscription", json={"topics": list(topics)})
    assert subscribed.status_code == 204, subscribed.text
    return url


async def values(client: Any, url: str, count: int) -> list[Any]:
    """What polls give, until there are so many."""
    found: list[Any] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            answer = await client.get(f"{url}/records", params={"wait_ms": 2000})
            assert answer.status_code == 200, answer.text
            found += [each["value"] for each in answer.json()["records"]]
    return found


async def assigned(client: Any, url: str) -> set[int]:
    return {each["partition"] for each in (await client.get(url)).json()["assignment"]}


async def send(client: Any, numbers: range) -> None:
    answer = await client.post("/topics/t/records", json=[{"key": str(n), "value": n} for n in numbers])
    assert answer.status_code == 200, answer.text


async def test_a_consumer_reads_commits_and_another_goes_on_from_there(client: Any) -> None:
    await send(client, range(20))
    url = await made(client)
    assert sorted(await values(client, url, 20)) == list(range(20))
    committed = await client.post(f"{url}/offsets", json={})
    assert sum(each["offset"] for each in committed.json()["offsets"]) == 20
    assert (await client.post(f"{url}/offsets", json={})).json() == {"offsets": []}, "it is committed already"
    described = (await client.get("/groups/g")).json()
    assert (described["state"], described["type"], len(described["members"])) == ("Stable", "consumer", 1)
    assert (await client.get("/groups/g/offsets")).json()["lag"] == 0
    assert (await client.delete(url)).status_code == 204
    assert (await client.get(f"{url}/records")).status_code == 404
    assert (await client.get("/groups/g")).json()["members"] == []
    await send(client, range(20, 25))
    second = await made(client)
    assert sorted(await values(client, second, 5)) == list(range(20, 25))
    assert (await client.delete("/groups/g")).json()["error"] == "NON_EMPTY_GROUP"
    await client.delete(second)
    assert (await client.delete("/groups/g")).status_code == 204


async def test_two_consumers_share_the_partitions_and_no_record_is_given_to_both(client: Any) -> None:
    first = await made(client, auto_commit=True)
    await send(client, range(40))
    assert sorted(await values(client, first, 40)) == list(range(40))
    second = await made(client, auto_commit=True)
    async with asyncio.timeout(20):
        while True:
            mine, other = await assigned(client, first), await assigned(client, second)
            assert not mine & other, "a partition belongs to one at a time"
            if len(mine) == len(other) == 2:
                break
            # auto_commit: what the first gave up was committed, or the second would get it again
            assert (await client.get(f"{second}/records")).json() == {"records": []}
            await asyncio.sleep(0.05)
    await send(client, range(40, 80))
    polled: list[int] = []
    async with asyncio.timeout(20):
        while len(polled) < 40:
            for url in (first, second):
                records = (await client.get(f"{url}/records", params={"wait_ms": 200})).json()["records"]
                polled += [each["value"] for each in records]
    assert sorted(polled) == list(range(40, 80))
    await client.delete(first)
    await send(client, range(80, 120))
    assert sorted(await values(client, second, 40)) == list(range(80, 120)), "it has all of them now"


async def test_one_that_is_not_used_leaves_its_group(client: Any) -> None:
    url = await made(client, idle_ms=1000)
    waiting = await client.get(f"{url}/records", params={"wait_ms": 1500})
    assert waiting.json() == {"records": []}, "a poll that waits is use"
    async with asyncio.timeout(10):
        while (await client.get("/groups/g")).json()["members"]:
            await asyncio.sleep(0.1)
    gone = await client.get(f"{url}/records")
    assert (gone.status_code, gone.json()["error"]) == (404, "UNKNOWN_MEMBER_ID")


async def test_a_poll_whose_client_goes_away_loses_nothing(client: Any) -> None:
    url = await made(client)
    waiting = asyncio.ensure_future(client.get(f"{url}/records", params={"wait_ms": 20000}))
    async with asyncio.timeout(5):
        while (busy := await client.get(f"{url}/records")).status_code != 409:
            await asyncio.sleep(0.02)
    assert "under way" in busy.json()["detail"]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    next_one = await client.get(f"{url}/records")
    assert next_one.status_code == 200, "the first has a moment to end"
    await send(client, range(10))
    found = [each["value"] for each in next_one.json()["records"]]
    assert sorted(found + await values(client, url, 10 - len(found))) == list(range(10))
    wish = [{"topic": "t", "partition": partition, "to": "earliest"} for partition in range(4)]
    assert (await client.put(f"{url}/positions", json={"positions": wish})).status_code == 204
    assert sorted(await values(client, url, 10)) == list(range(10)), "and once more"


async def test_bad_wishes_get_clear_errors(client: Any) -> None:
    body: Any
    for body in ({"auto_offset_reset": "middle"}, {"idle_ms": 5}, {"nme": "x"}, [], {"auto_commit": "yes"}):
        assert (await client.post("/groups/g/consumers", json=body)).status_code == 400
    answer = await client.post("/groups/g/consumers", json={"auto_offset_reset": "none"})
    url = answer.json()["url"]
    assert (await client.get(f"{url}/records")).status_code == 409, "not subscribed"
    for body in ({}, {"topics": []}, {"topics": ["t"], "topic_pattern": "t"}, {"topics": [1]}, {"topics": "t"}):
        assert (await client.put(f"{url}/subscription", json=body)).status_code == 400
    refused = await client.put(f"{url}/subscription", json={"topic_pattern": "("})
    assert refused.json()["error"] == "INVALID_REGULAR_EXPRESSION"
    assert (await client.put(f"{url}/subscription", json={"topic_pattern": "t.*"})).status_code == 204
    none = await client.get(f"{url}/records", params={"wait_ms": 5000})
    assert (none.status_code, none.json()["error"]) == (416, "OFFSET_OUT_OF_RANGE")
    stale = await client.post(f"{url}/offsets", json={"offsets": [{"topic": "nowhere", "partition": 0, "offset": 1}]})
    assert stale.status_code in (404, 409)
    assert (await client.head(f"{url}/records")).status_code == 405
    assert (await client.get(f"{url}/records?wait=5")).status_code == 400
    assert (await client.get(url.replace("/g/", "/other/"))).status_code == 404
    assert (await client.get("/groups/g/consumers/7-abc/records")).status_code == 404


async def test_a_consumer_that_is_deleted_while_it_polls_holds_nobody_up(client: Any) -> None:
    url = await made(client)
    await send(client, range(8))
    await values(client, url, 8)
    waiting = asyncio.ensure_future(client.get(f"{url}/records", params={"wait_ms": 6000}))
    async with asyncio.timeout(5):
        while (await client.get(f"{url}/records")).status_code != 409:
            await asyncio.sleep(0.02)
    began = asyncio.get_running_loop().time()
    assert (await client.delete(url)).status_code == 204
    assert (await client.get("/livez")).status_code == 200
    assert (await waiting).status_code in (200, 404)
    assert asyncio.get_running_loop().time() - began < 4


async def test_a_consumer_that_is_deleted_while_it_subscribes_is_gone(client: Any, node: Any) -> None:
    url = (await client.post("/groups/g/consumers", json={})).json()["url"]
    instance = instance_of(node, url)
    topics = {"topics": ["t"]}
    asked = [client.put(f"{url}/subscription", json=topics), client.delete(url)]
    subscribed, deleted = await asyncio.gather(*asked)
    assert (subscribed.status_code in (204, 404), deleted.status_code) == (True, 204)
    assert instance.member._beating is None, "it does not go on with nobody to stop it"
    async with asyncio.timeout(10):
        while (await client.get("/groups/g")).json().get("members"):
            await asyncio.sleep(0.05)


async def test_positions_that_change_during_a_poll_count(client: Any, node: Any) -> None:
    url = await made(client)
    await send(client, range(20))
    await values(client, url, 20)
    waiting = asyncio.ensure_future(client.get(f"{url}/records", params={"wait_ms": 10000}))
    async with asyncio.timeout(5):
        while (await client.get(f"{url}/records")).status_code != 409:
            await asyncio.sleep(0.02)
    wish = [{"topic": "t", "partition": partition, "offset": 0} for partition in range(4)]
    assert (await client.put(f"{url}/positions", json={"positions": wish})).status_code == 204
    await send(client, range(20, 40))
    found = [each["value"] for each in (await waiting).json()["records"]]
    found += await values(client, url, 40 - len(found))
    assert sorted(found) == list(range(40)), "those before what the poll waited for, too"


async def test_a_member_that_was_fenced_goes_on_from_what_is_committed(client: Any, node: Any) -> None:
    url = await made(client)
    await send(client, range(20))
    await values(client, url, 20)
    instance = instance_of(node, url)
    instance.member._forget()  # as when the coordinator says so
    assert (instance.positions, instance.given) == ({}, {}), "another may have read on and committed meanwhile"
    assert (await client.post(f"{url}/offsets", json={})).json() == {"offsets": []}
    assert sorted(await values(client, url, 20)) == list(range(20))


def instance_of(node: Any, url: str) -> Any:
    return node._http._api.consumers._instances[url.rpartition("/")[2]]
