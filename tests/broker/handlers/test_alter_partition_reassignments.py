from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

FACTOR_CHANGE_FROM = 1


async def reassign(
    client: Any, version: int, *replicas: list[int] | None, topic: str = "t", may_change: bool = True
) -> dict[int, int]:
    """The code of each partition; each goes to the replicas at its place."""
    partitions = [ReassignablePartition(partition_index=index, replicas=ids) for index, ids in enumerate(replicas)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=partitions)], allow_replication_factor_change=may_change
    )
    answer = await client.ask(request, version)
    assert (answer.error_code, answer.allow_replication_factor_change) == (0, may_change)
    return {each.partition_index: each.error_code for one in answer.responses for each in one.partitions}


async def test_a_partition_is_on_its_way_until_the_new_replica_is_in_sync(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1])
    assert await reassign(cluster.client, 1, [2]) == {0: 0}
    moving = cluster.partition()
    assert (moving.adding, moving.removing, moving.leader) == ((2,), (1,), 1)
    told = await cluster.alter_isr(1, 2, leader=1)
    assert told.error_code == ErrorCode.NEW_LEADER_ELECTED
    moved = cluster.partition()
    assert (moved.replicas, moved.isr, moved.leader) == ((2,), (2,), 2)
    assert (moved.adding, moved.removing) == ((), ())


async def test_null_cancels_a_move(cluster: Any, version: int) -> None:
    await cluster.join(2)
    await cluster.create("t", [1])
    assert await reassign(cluster.client, version, None) == {0: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
    await reassign(cluster.client, version, [2])
    assert await reassign(cluster.client, version, None) == {0: 0}
    back = cluster.partition()
    assert (back.replicas, back.adding, back.removing) == ((1,), (), ())


async def test_replicas_that_cannot_be_are_refused_and_the_others_move(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1], [1])
    for wrong in ([], [1, 1], [99], [-1], [1, 99]):
        codes = await reassign(cluster.client, 1, wrong, [2])
        assert codes == {0: ErrorCode.INVALID_REPLICA_ASSIGNMENT, 1: 0}
    assert cluster.partition().replicas == (1,)
    assert cluster.partition(index=1).adding == (2,)


async def test_the_number_of_replicas_may_be_kept_from_changing(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1])
    kept = await reassign(cluster.client, FACTOR_CHANGE_FROM, [1, 2], may_change=False)
    assert kept == {0: ErrorCode.INVALID_REPLICATION_FACTOR}
    assert await reassign(cluster.client, 0, [1, 2]) == {0: 0}
    assert cluster.partition().adding == (2,)


async def test_what_does_not_exist_is_said(shared: Any, topic: str, version: int) -> None:
    unknown = {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await reassign(shared, version, [1], topic="missing") == unknown
    assert (await shared.ask(AlterPartitionReassignmentsRequest(), version)).responses == []
    partition = ReassignablePartition(partition_index=99, replicas=[1])
    wanted = [ReassignableTopic(name=topic, partitions=[partition])]
    answer = await shared.ask(AlterPartitionReassignmentsRequest(topics=wanted), version)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_partition_that_is_where_it_shall_be_does_not_change(cluster: Any, version: int) -> None:
    await cluster.create("t", [1])
    before = cluster.partition()
    assert await reassign(cluster.client, version, [1]) == {0: 0}
    assert cluster.partition() == before
