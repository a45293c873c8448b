from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemark.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)


@pytest.fixture
async def moving(cluster: Any) -> Any:
    """Partition 1 of `t` moves from broker 1 to broker 2; nothing else moves."""
    await cluster.join(2)
    await cluster.create("t", [1], [1])
    await cluster.create("u", [1])
    partition = ReassignablePartition(partition_index=1, replicas=[2])
    wanted = [ReassignableTopic(name="t", partitions=[partition])]
    await cluster.client.ask(AlterPartitionReassignmentsRequest(topics=wanted))
    return cluster.client


async def listed(client: Any, topics: dict[str, list[int]] | None) -> dict[tuple[str, int], Any]:
    wanted = topics and [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes) for name, indexes in topics.items()
    ]
    answer = await client.ask(ListPartitionReassignmentsRequest(topics=None if topics is None else wanted or []))
    assert answer.error_code == ErrorCode.NONE
    return {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}


async def test_the_partitions_on_the_move_are_returned(moving: Any) -> None:
    for topics in (None, {"t": [0, 1]}, {"t": [1, 1], "u": [0]}):
        told = await listed(moving, topics)
        assert set(told) == {("t", 1)}
        each = told["t", 1]
        assert (sorted(each.replicas), each.adding_replicas, each.removing_replicas) == ([1, 2], [2], [1])


async def test_what_does_not_move_or_exist_is_left_out(moving: Any) -> None:
    others: list[dict[str, list[int]]] = [{}, {"t": []}, {"t": [0]}, {"t": [99, -1]}, {"u": [0]}, {"missing": [0]}]
    for topics in others:
        assert await listed(moving, topics) == {}


async def test_nothing_moves_on_a_broker_that_is_alone(shared: Any, topic: str) -> None:
    assert await listed(shared, None) == {}
