"""What clients make brokers remember has bounds, and is forgotten when they are gone."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from cluster_simulation.history import Anomaly
from tidemark.simulation import Broker, Cluster

FRAME_BYTES_MAX: Final = 1 << 20  # the largest that a client here sends
REQUEST_BYTES: Final = ("-1", "20000")  # queued.max.request.bytes


def settings(seed: int) -> dict[str, str]:
    return {"queued.max.request.bytes": Random(f"memory {seed}").choice(REQUEST_BYTES)}


def check_bounds(broker: Broker) -> None:
    """At every moment."""
    for budget in _budgets(broker):
        if not 0 <= budget.used_bytes <= budget.limit_bytes + FRAME_BYTES_MAX:
            raise Anomaly(f"{broker.name}: requests take {budget.used_bytes} bytes of {budget.limit_bytes}")


def check_forgotten(cluster: Cluster) -> None:
    """When no client has asked anything for a while."""
    for broker in cluster.brokers.values():
        for budget in _budgets(broker):
            if budget.used_bytes:
                raise Anomaly(f"{broker.name}: {budget.used_bytes} bytes of requests that nobody sends are counted")
        table = broker.node._replicas.table  # type: ignore[union-attr]
        for partition in table.led():
            _check_partition(f"{broker.name}: {partition.topic}-{partition.index}", partition, len(cluster.brokers))
        for replica in table:
            if count := replica.log.producer_states.unreplicated_count:  # housekeeping has looked since
                name = f"{broker.name}: {replica.topic}-{replica.index}"
                raise Anomaly(f"{name}: {count} transactions have ended, are committed, and are remembered")


def _budgets(broker: Broker) -> tuple[Any, ...]:
    server = getattr(broker.node, "_server", None)
    return () if server is None else (server.memory, server.controller_memory)


def _check_partition(name: str, partition: Any, nodes: int) -> None:
    waiting = len(partition._waiting) + len(partition._flush_waiting) + len(partition._low_waiting)
    if waiting:
        raise Anomaly(f"{name}: {waiting} answers wait for what has happened, or never will")
    if partition.watchers:
        raise Anomaly(f"{name}: {len(partition.watchers)} readers wait, and there are none")
    if len(partition.replica_watchers) >= nodes:
        raise Anomaly(f"{name}: {len(partition.replica_watchers)} followers, of {nodes} nodes")
