"""In a cluster any node answers for any partition and any group."""

import asyncio
from typing import Any

import pytest

from tidemark.broker.peers.link import Channel, PeerLink


async def test_every_node_writes_and_reads_every_partition(nodes: Any, browse: Any) -> None:
    await nodes.start(
        *nodes.voters, http_listeners="HTTP://127.0.0.1:0", group_consumer_min_heartbeat_interval_ms="100"
    )
    clients = {node_id: browse(nodes.running[node_id]) for node_id in nodes.voters}
    first = clients[nodes.voters[0]]
    made = await first.post("/topics", json={"name": "t", "partitions": 3, "replication_factor": 1})
    assert made.status_code == 201, made.text
    for node_id in nodes.voters:
        await nodes.until(lambda node_id=node_id: "t" in nodes.image(node_id).topics)
    leaders = {each.leader for each in nodes.image(nodes.voters[0]).topics["t"].partitions}
    assert len(leaders) == 3, "each leads one of them"
    for node_id, client in clients.items():
        records = [{"value": node_id, "partition": partition} for partition in range(3)]
        answer = await client.post("/topics/t/records", json=records)
        assert answer.status_code == 200, answer.text
    for client in clients.values():
        for partition in range(3):
            read = await client.get(f"/topics/t/partitions/{partition}/records")
            assert read.status_code == 200, read.text
            assert [each["value"] for each in read.json()["records"]] == list(clients)
        wish = {"offsets": [{"topic": "t", "partition": 1, "offset": 1}]}
        assert (await client.put("/groups/g/offsets", json=wish)).status_code == 204
        assert (await client.get("/groups/g/offsets")).json()["lag"] == 2
        assert [each["group"] for each in (await client.get("/groups")).json()["groups"]] == ["g"]
        assert (await client.get("/readyz")).status_code == 200
    await clients_are_redirected_where_they_ask_for_it(nodes, clients)
    await consumers_on_different_nodes_share_a_group(clients)


async def clients_are_redirected_where_they_ask_for_it(nodes: Any, clients: Any) -> None:
    leaders = [each.leader for each in nodes.image(nodes.voters[0]).topics["t"].partitions]
    for node_id, client in clients.items():
        for partition, leader in enumerate(leaders):
            path = f"/topics/t/partitions/{partition}/records?redirect=true&offset=1"
            asked = await client.get(path)
            if leader == node_id:
                assert asked.status_code == 200
                continue
            host, port = nodes.running[leader].http_endpoints["HTTP"]
            assert (asked.status_code, asked.headers["location"]) == (307, f"http://{host}:{port}{path}")
            assert (await client.get(path, follow_redirects=True)).json()["next_offset"] == len(clients)
            sent = await client.post("/topics/t/records?redirect=true", json={"value": 1, "partition": partition})
            assert sent.status_code == 307


async def consumers_on_different_nodes_share_a_group(clients: Any) -> None:
    urls = []
    for client in clients.values():
        url = (await client.post("/groups/shared/consumers", json={})).json()["url"]
        assert url.startswith(str(client.base_url)), "it is where it was made"
        assert (await client.put(f"{url}/subscription", json={"topics": ["t"]})).status_code == 204
        urls.append(url)
    client = next(iter(clients.values()))
    read: list[Any] = []
    async with asyncio.timeout(30):
        while True:
            for url in urls:
                read += (await client.get(f"{url}/records", params={"wait_ms": 100})).json()["records"]
            owners = [(await client.get(url)).json()["assignment"] for url in urls]
            if [len(each) for each in owners] == [1, 1, 1] and all(each[0]["position"] for each in owners):
                break
    assert len({(each["partition"], each["offset"]) for each in read}) == 9
    elsewhere = urls[-1].partition("/groups")[2]
    redirected = await client.get(f"/groups{elsewhere}/records")
    assert (redirected.status_code, redirected.headers["location"]) == (307, f"{urls[-1]}/records")
    for url in urls:
        assert (await client.delete(url)).status_code == 204


async def test_another_node_is_asked_again_though_it_could_not_be_reached_at_first(
    nodes: Any, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not get the request, so that this does no harm; a busy machine is enough for it to take too long."""
    client = await topic_on_three_nodes(nodes, browse)
    failed: set[str] = set()

    async def open_late(link: PeerLink) -> Channel:
        if "clients" in link.name and link.name not in failed:
            failed.add(link.name)
            raise TimeoutError
        return await opened(link)

    opened = PeerLink._open
    monkeypatch.setattr(PeerLink, "_open", open_late)
    await writes_and_reads_each_partition(client)
    assert len(failed) == 6, "three questions each (write, where the log begins, what is there) to two other nodes"


async def test_a_read_goes_on_though_the_link_to_the_leader_breaks(
    nodes: Any, browse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading twice does no harm."""
    client = await topic_on_three_nodes(nodes, browse)
    broken: set[str] = set()

    async def ask(channel: Channel, correlation_id: int, frame: bytes) -> memoryview:
        name = channel._link.name
        if "clients" in name and "Produce" not in name and name not in broken:
            broken.add(name)
            asyncio.get_running_loop().call_soon(channel.abort, "by the test")
        return await asked(channel, correlation_id, frame)

    asked = Channel.ask
    monkeypatch.setattr(Channel, "ask", ask)
    await writes_and_reads_each_partition(client)
    assert len(broken) == 4, "two questions each (where the log begins, what is there) to two other nodes"


async def topic_on_three_nodes(nodes: Any, browse: Any) -> Any:
    await nodes.start(*nodes.voters, http_listeners="HTTP://127.0.0.1:0")
    client = browse(nodes.running[nodes.voters[0]])
    made = await client.post("/topics", json={"name": "t", "partitions": 3, "replication_factor": 1})
    assert made.status_code == 201, made.text
    return client


async def writes_and_reads_each_partition(client: Any) -> None:
    for partition in range(3):
        sent = await client.post("/topics/t/records", json={"value": partition, "partition": partition})
        assert sent.status_code == 200, sent.text
        read = await client.get(f"/topics/t/partitions/{partition}/records")
        assert read.status_code == 200, read.text
        assert [each["value"] for each in read.json()["records"]] == [partition]
