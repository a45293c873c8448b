"""In a cluster any node answers for any partition and any group."""

import asyncio
from typing import Any


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
            read = (await client.get(f"/topics/t/partitions/{partition}/records")).json()
            assert [each["value"] for each in read["records"]] == list(clients)
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
