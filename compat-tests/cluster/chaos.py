"""A cluster under load and faults, and the verdict. `python compat-tests/cluster/chaos.py --minutes 10` runs long."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from cluster.history import History, Report, check
from cluster.nemesis import (
    CutOff,
    CutOneWay,
    CutOtherWay,
    CutPair,
    Fault,
    Kill,
    KillController,
    LongPause,
    Nemesis,
    Pause,
    RollingRestart,
)
from cluster.workload import Reader, Writer, read_everything
from harness import network
from harness.cluster import Cluster, ClusterNode
from harness.network import Network

TOPIC = "chaos"
PARTITIONS = 6


@dataclass(frozen=True, kw_only=True)
class Outcome:
    report: Report
    faults: dict[str, int]
    seconds: float

    def __str__(self) -> str:
        faults = ", ".join(f"{count} × {name}" for name, count in sorted(self.faults.items()))
        return f"{self.seconds:.0f} s; faults: {faults}\n{self.report}"


def run(
    cluster: Cluster, faults: Sequence[Fault], *, seconds: float, seed: int, writers: int = 2, readers: int = 1
) -> Outcome:
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3, min_insync_replicas="2")
    history = History()
    bootstrap = cluster.bootstrap
    started = time.monotonic()
    writing = [Writer(number, bootstrap, TOPIC, partitions=PARTITIONS, history=history) for number in range(writers)]
    reading = [Reader(number, bootstrap, TOPIC, partitions=PARTITIONS, history=history) for number in range(readers)]
    nemesis = Nemesis(cluster, faults, seed=seed, healthy=lambda: cluster.await_in_sync(TOPIC))
    try:
        nemesis.run(seconds)
    finally:
        for writer in writing:
            writer.stop.set()
        for writer in writing:
            writer.thread.join(120)
    took = time.monotonic() - started
    final = read_everything(bootstrap, TOPIC, partitions=PARTITIONS)
    for reader in reading:
        reader.finish(sum(map(len, final.values())))
    return Outcome(report=check(history, final), faults=dict(nemesis.injected), seconds=took)


def everything() -> list[Fault]:
    return [Kill(), Kill((0.0, 0.0)), KillController(), Pause(), LongPause(), RollingRestart()]


def cuts(over: Network) -> list[Fault]:
    return [CutOff(over), CutPair(over), CutOneWay(over), CutOtherWay(over)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-chaos-")))
        faults = everything()
        if network.available():
            over = opened.enter_context(Network(3))
            faults += cuts(over)
            cluster = Cluster(directory, make=partial(_on, over))
        else:
            print("without cuts in the network: they need Linux and root", flush=True)
            cluster = Cluster(directory)
        cluster.start()
        opened.callback(cluster.close)
        outcome = run(cluster, faults, seconds=arguments.minutes * 60, seed=seed)
    print(outcome)
    return 0 if outcome.report.is_clean else 1


def _on(over: Network, path: Path, settings: Mapping[str, str] | None, *, node_id: int) -> ClusterNode:
    return ClusterNode(path, settings, node_id=node_id, host=over.host(node_id), prefix=over.inside(node_id))


if __name__ == "__main__":
    raise SystemExit(main())
