"""In a cluster any node answers for any partition and any group."""

from typing import Any


async def test_every_node_writes_and_reads_every_partition(nodes: Any, browse: Any) -> None:
    await nodes.start(*nodes.voters, http_listeners="HTTP://127.0.0.1:0")
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
