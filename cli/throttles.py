"""Throttling replication while partitions move, with the settings that Kafka's own tool uses (KIP-73)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from tidemark.cli.cluster_client import check
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidemark.cli.cluster_client import ClusterClient
    from tidemark.cli.cluster_state import ClusterState
    from tidemark.cli.moves import Move

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS: Final = "leader.replication.throttled.replicas"
FOLLOWERS: Final = "follower.replication.throttled.replicas"
TOPIC: Final = 2
BROKER: Final = 4
SET: Final = 0
DELETE: Final = 1


def throttle(cluster: ClusterClient, view: ClusterState, moves: Sequence[Move], *, rate: int) -> None:
    """The old replicas send, and the new ones receive, at most `rate` bytes per second each."""
    now = {(each.topic, each.partition): each.replicas for each in view.partitions}
    for topic in sorted({each.topic for each in moves}):
        of_it = [each for each in moves if each.topic == topic]
        old = {each.partition: now.get((topic, each.partition), []) for each in of_it}
        leaders = [f"{index}:{node}" for index, nodes in old.items() for node in nodes]
        followers = [f"{m.partition}:{node}" for m in of_it for node in m.replicas if node not in old[m.partition]]
        lists = [(LEADERS, SET, ",".join(leaders)), (FOLLOWERS, SET, ",".join(followers))]
        _alter(cluster, cluster.brokers[0], TOPIC, topic, lists)
    involved = {node for each in moves for node in (*each.replicas, *now.get((each.topic, each.partition), []))}
    _set_rates(cluster, [each for each in involved if each in cluster.brokers], SET, str(rate))


def unthrottle(cluster: ClusterClient, moves: Sequence[Move]) -> None:
    for topic in sorted({each.topic for each in moves}):
        _alter(cluster, cluster.brokers[0], TOPIC, topic, [(LEADERS, DELETE, None), (FOLLOWERS, DELETE, None)])
    _set_rates(cluster, cluster.brokers, DELETE, None)


def _set_rates(cluster: ClusterClient, brokers: Iterable[int], operation: int, value: str | None) -> None:
    for broker in brokers:
        _alter(cluster, broker, BROKER, str(broker), [(name, operation, value) for name in RATES])


def _alter(
    cluster: ClusterClient, broker: int, kind: int, name: str, changes: Sequence[tuple[str, int, str | None]]
) -> None:
    configs = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)]
    )
    answer = cluster.call(broker, request, IncrementalAlterConfigsResponse, 1)
    for each in answer.responses:
        check(each.error_code, "The throttle cannot be set", each.error_message)
