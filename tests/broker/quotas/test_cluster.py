"""Quotas in a cluster of three nodes in one event loop: set over one of them, and counted by all."""

from __future__ import annotations

import asyncio
from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, EntityData, OpData
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tidemark.protocol.messages.produce import ProduceResponse

NAME = "test"  # the client id of a test's connections


def altered(key: str, value: float) -> AlterClientQuotasRequest:
    entity = [EntityData(entity_type="client-id", entity_name=NAME)]
    return AlterClientQuotasRequest(entries=[AlterationData(entity=entity, ops=[OpData(key=key, value=value)])])


async def test_a_quota_that_is_set_over_one_node_counts_on_all(nodes: Any, connect: Any, requests: Any) -> None:
    await nodes.start()
    clients = {node_id: await connect(nodes.running[node_id]) for node_id in nodes.voters}
    asked = clients[nodes.another]  # which is not the controller
    topic = CreatableTopic(name="t", num_partitions=3, replication_factor=3)
    await asked.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    leaders = [each.leader for each in nodes.image(nodes.another).topics["t"].partitions]
    assert sorted(leaders) == [1, 2, 3]

    [entry] = (await asked.ask(altered("producer_byte_rate", 10_000))).entries
    assert entry.error_code == 0
    filters = [ComponentData(entity_type="client-id", match_type=0, match=NAME)]
    for node_id, client in clients.items():
        await nodes.until(lambda node_id=node_id: nodes.image(node_id).client_quotas)
        [shown] = (await client.ask(DescribeClientQuotasRequest(components=filters))).entries
        assert [(each.key, each.value) for each in shown.values] == [("producer_byte_rate", 10_000)]

    sent = [
        clients[leader].call(requests.produce("t", bytes(65_000), partition=partition), ProduceResponse, 12)
        for partition, leader in enumerate(leaders)
    ]
    answers = await asyncio.gather(*sent)
    assert all(5_000 < each.throttle_time_ms < 6_500 for each in answers), "each node allows as much"
    assert all(each.responses[0].partition_responses[0].error_code == 0 for each in answers), "followers went on"


async def test_partitions_are_counted_for_the_client_by_whichever_node_it_asks(nodes: Any, connect: Any) -> None:
    await nodes.start()
    client = await connect(nodes.running[nodes.another])
    await client.ask(altered("controller_mutation_rate", 1.0))
    codes, throttle_ms = [], []
    for number in range(3):
        topic = CreatableTopic(name=f"t{number}", num_partitions=8, replication_factor=1)
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        codes.append(answer.topics[0].error_code)
        throttle_ms.append(answer.throttle_time_ms)
        if answer.throttle_time_ms:
            client = await connect(nodes.running[nodes.another])  # the other is not heard for that long
    assert codes == [0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED], "ten seconds' worth, and what was begun with it"
    assert throttle_ms[-1] > 0
