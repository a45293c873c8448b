"""What goes wrong on purpose: one fault after the other, chosen by a seed, each healed before the next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from harness.cluster import Cluster, ClusterNode


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


def _any(cluster: Cluster, random: Random) -> ClusterNode:
    return random.choice(list(cluster.nodes.values()))


class Nemesis:
    def __init__(self, cluster: Cluster, faults: Sequence[Fault], *, seed: int, healthy: Callable[[], None]) -> None:
        """`healthy` returns when the cluster has recovered from the last fault."""
        self.injected: Counter[str] = Counter()
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
            self.injected[fault.name] += 1
            fault(self._cluster, self._random)
            self._healthy()
            time.sleep(self._random.uniform(0.5, 2.0))
