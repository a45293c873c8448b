"""Moving partitions to other brokers: who goes where, and waiting until they are there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidemark.cli.failure import CommandFailed

if TYPE_CHECKING:
    from tidemark.cli.cluster_view import View
    from tidemark.cli.wire import Cluster

POLL_S = 0.5
AT_ONCE_MAX = 500


class Move(NamedTuple):
    topic: str
    partition: int
    replicas: list[int]


def away_from(view: View, broker_id: int) -> list[Move]:
    """Each replica of this broker goes to the one that holds least, in another rack than the rest if there is one."""
    candidates = [each for each in view.brokers if each.broker_id != broker_id and not each.is_fenced]
    racks = {each.broker_id: each.rack for each in view.brokers}
    load = Counter({each.broker_id: 0 for each in candidates})
    for partition in view.partitions:
        load.update(each for each in partition.replicas if each in load)
    moves = []
    for partition in view.partitions:
        if broker_id not in partition.replicas:
            continue
        rest = [each for each in partition.replicas if each != broker_id]
        free = [each.broker_id for each in candidates if each.broker_id not in rest]
        if not free:
            raise CommandFailed(
                f"{partition.topic}-{partition.partition} has {len(partition.replicas)} replica(s), and no other broker"
                " is left to take one: add a broker first."
            )
        used = {racks[each] for each in rest}
        heir = min(free, key=lambda each: (racks[each] in used, load[each], each))
        load[heir] += 1
        replicas = [heir if each == broker_id else each for each in partition.replicas]
        moves.append(Move(partition.topic, partition.partition, replicas))
    return moves


def move(cluster: Cluster, moves: Sequence[Move], *, wait_s: float) -> None:
    """Start all of them; with a time to wait, return when they are there."""
    deadline = time.monotonic() + wait_s
    for start in range(0, len(moves), AT_ONCE_MAX):
        chunk = moves[start : start + AT_ONCE_MAX]
        _alter(cluster, {(each.topic, each.partition): each.replicas for each in chunk})
        while wait_s and (left := _moving(cluster, chunk)):
            if time.monotonic() > deadline:
                raise CommandFailed(f"{left} partition(s) are still on their way after {wait_s:g} s; they go on.")
            time.sleep(POLL_S)


def cancel(cluster: Cluster, moves: Sequence[Move]) -> None:
    _alter(cluster, {(each.topic, each.partition): None for each in moves})


def _alter(cluster: Cluster, wanted: dict[tuple[str, int], list[int] | None]) -> None:
    from tidemark.protocol.errors import ErrorCode
    from tidemark.protocol.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        ReassignablePartition,
        ReassignableTopic,
    )

    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in wanted.items():
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=index, replicas=replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    )
    answer = cluster.call(cluster.brokers[0], request, AlterPartitionReassignmentsResponse, 1)
    if answer.error_code:
        raise CommandFailed(f"The cluster refused: {answer.error_message or ErrorCode(answer.error_code).name}")
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code:
                raise CommandFailed(f"{topic.name}-{each.partition_index}: {each.error_message}")


def _moving(cluster: Cluster, moves: Sequence[Move]) -> int:
    from tidemark.protocol.messages.list_partition_reassignments import (
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
    )

    request = ListPartitionReassignmentsRequest(topics=None)
    answer = cluster.call(cluster.brokers[0], request, ListPartitionReassignmentsResponse, 0)
    under_way = {(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions}
    return sum((each.topic, each.partition) in under_way for each in moves)
