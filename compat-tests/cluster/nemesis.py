"""What goes wrong on purpose: one fault after the other, chosen by a seed, each healed before the next."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import NamedTuple, Protocol

from harness.clock import Clock
from harness.cluster import Cluster, ClusterNode
from harness.commands import tidemark
from harness.network import Network
from harness.waiting import eventually


class Fault(Protocol):
    name: str

    def __call__(self, cluster: Cluster, random: Random) -> None:
        """Inject, wait as long as it shall last, heal."""


class Kill:
    name = "kill -9"

    def __init__(self, down_seconds: tuple[float, float] = (0.0, 4.0)) -> None:
        self._down = down_seconds

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = _any(cluster, random)
        node.kill()
        time.sleep(random.uniform(*self._down))
        node.start()


class KillController:
    name = "kill -9 of the controller"

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = cluster.nodes[cluster.await_controller()]
        node.kill()
        time.sleep(random.uniform(0.5, 3.0))
        node.start()


class Pause:
    name = "SIGSTOP, SIGCONT"

    def __init__(self, seconds: tuple[float, float] = (0.2, 4.0)) -> None:
        self._seconds = seconds

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = _any(cluster, random)
        node.pause()
        try:
            time.sleep(random.uniform(*self._seconds))
        finally:
            node.resume()


class LongPause(Pause):
    """Past the session, so that it wakes up as a zombie."""

    name = "SIGSTOP past the session"

    def __init__(self) -> None:
        super().__init__((11.0, 14.0))


class RollingRestart:
    name = "rolling restart"

    def __call__(self, cluster: Cluster, random: Random) -> None:
        for node in random.sample(list(cluster.nodes.values()), len(cluster.nodes)):
            node.restart(clean=True)
            time.sleep(1.0)


class JumpClock:
    """A node's wall clock is set, forward or back, and back to the truth later."""

    name = "clock jumps"
    seconds_max = 3000  # less than `message.timestamp.after.max.ms`: or a record of a sane client is refused, rightly

    def __init__(self, clocks: Mapping[int, Clock]) -> None:
        self._clocks = clocks

    def __call__(self, cluster: Cluster, random: Random) -> None:
        chosen = random.sample(sorted(self._clocks), random.randint(1, len(self._clocks)))
        try:
            for _ in range(3):
                for node_id in chosen:
                    self._clocks[node_id].set(random.uniform(-self.seconds_max, self.seconds_max))
                time.sleep(random.uniform(1.2, 3.0))
        finally:
            for node_id in chosen:
                self._clocks[node_id].set(0)
        time.sleep(1.2)


class Newcomer:
    """A broker joins, takes over replicas and leads, gets a vote, dies once in between, and leaves for good."""

    name = "a node joins and leaves"

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, cluster: Cluster, random: Random) -> None:
        old = random.sample(list(cluster.nodes), len(cluster.nodes) - 1)
        known = ("-b", cluster.bootstrap, *cluster.options)
        node = cluster.add_node()
        to = ",".join(map(str, (node.node_id, *old)))
        tidemark("cluster", "reassign", *known, "--topic", self._topic, "--to", to)
        tidemark("cluster", "give-vote", *known, "--broker", str(node.node_id))
        time.sleep(random.uniform(0.5, 2.0))
        node.restart(clean=random.random() < 0.5)
        tidemark("cluster", "decommission", *known, "--broker", str(node.node_id))
        cluster.remove_node(node)
        eventually(lambda: cluster.is_fenced(node.node_id), seconds_max=30)
        tidemark("cluster", "decommission", *known, "--broker", str(node.node_id))


class RenewedCertificates:
    """Nodes get new certificates; then one that has never seen the old ones comes back and must be let in."""

    name = "certificates are renewed"

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew

    def __call__(self, cluster: Cluster, random: Random) -> None:
        self._renew()
        time.sleep(random.uniform(0.0, 1.0))
        _any(cluster, random).restart(clean=False)


def _any(cluster: Cluster, random: Random) -> ClusterNode:
    return random.choice(list(cluster.nodes.values()))


class Injected(NamedTuple):
    name: str
    began: float
    ended: float  # the cluster has recovered
    stopped_everything: bool = False  # no majority was left, so a gap is no surprise


class Nemesis:
    def __init__(self, cluster: Cluster, faults: Sequence[Fault], *, seed: int, healthy: Callable[[], None]) -> None:
        """`healthy` returns when the cluster has recovered from the last fault."""
        self.injected: list[Injected] = []
        self._cluster = cluster
        self._faults = faults
        self._random = Random(seed)
        self._healthy = healthy

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        rest: list[Fault] = []
        while time.monotonic() < end:
            if not rest:  # each in its turn, in a random order
                rest = self._random.sample(list(self._faults), len(self._faults))
            fault = rest.pop()
            began = time.monotonic()
            fault(self._cluster, self._random)
            self._healthy()
            stopped_everything = getattr(fault, "stops_everything", False)
            self.injected.append(Injected(fault.name, began, time.monotonic(), stopped_everything))
            time.sleep(self._random.uniform(0.5, 2.0))


class _Cut(ABC):
    """Links between nodes are silent for a while; clients reach every node all the same."""

    name = "cut"

    def __init__(self, network: Network, seconds: tuple[float, float] = (2.0, 12.0)) -> None:
        self._network = network
        self._seconds = seconds

    @abstractmethod
    def links(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        """Which are cut, of nodes in a random order: (from, to)."""

    def __call__(self, cluster: Cluster, random: Random) -> None:
        nodes = random.sample(list(cluster.nodes), len(cluster.nodes))
        for source, target in self.links(nodes):
            self._network.cut(source, target)
        try:
            time.sleep(random.uniform(*self._seconds))
        finally:
            self._network.mend_all()


class CutOff(_Cut):
    name = "a node cut off"

    def links(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        alone, *others = nodes
        return [(alone, other) for other in others] + [(other, alone) for other in others]


class CutPair(_Cut):
    name = "two nodes cut off from each other"

    def links(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        return [(nodes[0], nodes[1]), (nodes[1], nodes[0])]


class CutOneWay(_Cut):
    name = "a node that hears but is not heard"

    def links(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        return [(nodes[0], other) for other in nodes[1:]]


class CutOtherWay(_Cut):
    name = "a node that is heard but hears not"

    def links(self, nodes: Sequence[int]) -> list[tuple[int, int]]:
        return [(other, nodes[0]) for other in nodes[1:]]
