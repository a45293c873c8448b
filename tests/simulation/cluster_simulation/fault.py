"""What a fault is: drawn from a seed before the run begins, so that a run can be repeated without some of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemark.simulation import Broker, Cluster

LATER_SECONDS: Final = {
    "kills_then_blackout": 10.0,
    "unsynced_kills": 10.0,
    "replaced_disk": 8.0,
    "hand_over": 11.0,
    "rolling_stop": 10.0,
    "rolling_replace": 10.0,
    "lagging_pause": 14.0,
    "isolated_kill": 13.0,
    "isolated_stop": 20.0,
    "replaced_metadata": 10.0,
    "pause_client": 9.0,
    "damaged_restarts": 12.0,
    "torn_journal": 13.0,
    "stopped_power": 4.0,
}  # until the last part of it has begun


@dataclass(frozen=True, slots=True)
class Fault:
    kind: str
    node: int
    at: float
    seconds: float
    amount: float  # from 0 to 1: how much of it
    layout: str = "one"  # of the nodes' disks

    @property
    def ends_at(self) -> float:
        """When nothing comes of it any more."""
        return self.at + self.seconds + LATER_SECONDS.get(self.kind, 1.0)

    @property
    def node_name(self) -> str:
        return f"node-{self.node}"

    def __str__(self) -> str:
        return f"{self.kind} node-{self.node} at {self.at:.2f} for {self.seconds:.2f} s"


Begin = Callable[[Cluster, Fault], None]


def broker_of(cluster: Cluster, fault: Fault) -> Broker:
    return cluster.brokers[fault.node]


def others_of(cluster: Cluster, fault: Fault) -> list[str]:
    return [each.name for each in cluster.brokers.values() if each.node_id != fault.node]


def later(cluster: Cluster, fault: Fault, end: Callable[[], None]) -> None:
    cluster.world.after(fault.seconds, end)
