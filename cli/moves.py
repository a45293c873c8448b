"""Moving partitions to other brokers: which replica goes where, and waiting until the data is copied."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tidemark.cli.cluster_client import check
from tidemark.cli.waiting import wait_until
from tidemark.failure import CommandFailed
from tidemark.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidemark.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from tidemark.cli.cluster_client import ClusterClient
    from tidemark.cli.cluster_state import ClusterState

POLL_S = 0.5
AT_ONCE_MAX = 500


class Move(NamedTuple):
    topic: str
    partition: int
    replicas: list[int]


def away_from(view: ClusterState, broker_id: int) -> list[Move]:
    """Each replica of this broker goes to the broker with the fewest, if possible in a rack without this partition."""
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
        target = min(free, key=lambda each: (racks[each] in used, load[each], each))
        load[target] += 1
        replicas = [target if each == broker_id else each for each in partition.replicas]
        moves.append(Move(partition.topic, partition.partition, replicas))
    return moves


def move(cluster: ClusterClient, moves: Sequence[Move], *, wait_s: float) -> None:
    """Start all of them; with a time to wait, return when the data is copied."""
    deadline = time.monotonic() + wait_s
    for start in range(0, len(moves), AT_ONCE_MAX):
        chunk = moves[start : start + AT_ONCE_MAX]
        _alter(cluster, {(each.topic, each.partition): each.replicas for each in chunk})
        if not wait_s:
            continue
        is_done = wait_until(partial(_are_done, cluster, chunk), timeout_s=deadline - time.monotonic(), pause_s=POLL_S)
        if not is_done:
            left = _moving(cluster, chunk)
            raise CommandFailed(f"{left} partition(s) are still moving after {wait_s:g} s; they continue to.")


def _are_done(cluster: ClusterClient, moves: Sequence[Move]) -> bool | None:
    return True if _moving(cluster, moves) == 0 else None


def cancel(cluster: ClusterClient, moves: Sequence[Move]) -> None:
    _alter(cluster, {(each.topic, each.partition): None for each in moves})


def _alter(cluster: ClusterClient, wanted: dict[tuple[str, int], list[int] | None]) -> None:
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in wanted.items():
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=index, replicas=replicas))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    )
    answer = cluster.call_any(request, AlterPartitionReassignmentsResponse, 1)
    check(answer.error_code, "The cluster refused", answer.error_message)
    for answered in answer.responses:
        for each in answered.partitions:
            check(each.error_code, f"{answered.name}-{each.partition_index}", each.error_message)


def _moving(cluster: ClusterClient, moves: Sequence[Move]) -> int:
    request = ListPartitionReassignmentsRequest(topics=None)
    answer = cluster.call_any(request, ListPartitionReassignmentsResponse, 0)
    under_way = {(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions}
    return sum((each.topic, each.partition) in under_way for each in moves)
