"""A cluster under load and faults, and the verdict. `python compat-tests/cluster/chaos.py --minutes 10` runs long."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from types import MappingProxyType

if __name__ == "__main__":
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from cluster.history import History, Report, check
from cluster.nemesis import (
    CutOff,
    CutOneWay,
    CutOtherWay,
    CutPair,
    Fault,
    Injected,
    JumpClock,
    Kill,
    KillController,
    LongPause,
    Nemesis,
    Newcomer,
    Pause,
    RenewedCertificates,
    RollingRestart,
)
from cluster.nemesis_clients import Changes, HostileRequests
from cluster.nemesis_disk import (
    EmptyButEligible,
    FailedSyncs,
    FullController,
    FullDisk,
    HungController,
    PowerCut,
    ReplacedDisk,
    SlowSyncs,
    disks_of,
)
from cluster.workload import Reader, Writer, read_everything
from harness import network, preloaded
from harness.bad_syncs import BadSyncs
from harness.clock import Clock
from harness.cluster import Cluster, ClusterNode
from harness.network import Network
from harness.secure_cluster import SecureCluster, SecureNode

TOPIC = "chaos"
PARTITIONS = 6
NODES = 3


SERVES_AGAIN_SECONDS_MAX = 10.0  # of losing a leader; the goal is 1 after kill -9 on a quiet machine


@dataclass(frozen=True, kw_only=True)
class Outcome:
    report: Report
    faults: Sequence[Injected]
    seconds: float

    def gaps(self) -> dict[str, list[float]]:
        """By fault: the longest gap between acknowledgements of one partition, each time."""
        found: dict[str, list[float]] = defaultdict(list)
        for fault in self.faults:
            found[fault.name].append(self.report.longest_gap_in(fault.began, fault.ended))
        return dict(sorted(found.items()))

    @property
    def longest_gap(self) -> float:
        """Of all faults that left a majority."""
        served = [each for each in self.faults if not each.stopped_everything]
        return max((self.report.longest_gap_in(each.began, each.ended) for each in served), default=0.0)

    def diary(self) -> str:
        """Fault by fault, by the wall clock, to be read beside the nodes' logs."""
        offset = time.time() - time.monotonic()
        return "\n".join(
            f"{time.strftime('%H:%M:%S', time.localtime(each.began + offset))} {each.name}: "
            f"{self.report.longest_gap_in(each.began, each.ended):.2f} s, well after {each.ended - each.began:.1f} s"
            for each in self.faults
        )

    def __str__(self) -> str:
        lines = [f"{self.seconds:.0f} s, {len(self.faults)} faults; the longest gap of a partition at each:"]
        lines += [
            f"    {len(gaps):3} × {name}: at most {max(gaps):.2f} s, half of them under {median(gaps):.2f} s"
            for name, gaps in self.gaps().items()
        ]
        return "\n".join([*lines, str(self.report)])


def run(
    cluster: Cluster,
    faults: Sequence[Fault],
    *,
    seconds: float,
    seed: int,
    writers: int = 2,
    readers: int = 1,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """`settings`: more of those of the topic, with underscores."""
    if isinstance(cluster, SecureCluster):
        cluster.let_in(topic=TOPIC, groups=("reader-", "final"))
    cluster.create_topic(TOPIC, partitions=PARTITIONS, replicas=3, min_insync_replicas="2", **settings)
    history = History()
    bootstrap = cluster.bootstrap
    started = time.monotonic()
    known = {"partitions": PARTITIONS, "history": history, "client": cluster.user}
    writing = [Writer(number, bootstrap, TOPIC, **known) for number in range(writers)]
    reading = [Reader(number, bootstrap, TOPIC, **known) for number in range(readers)]
    nemesis = Nemesis(cluster, faults, seed=seed, healthy=lambda: cluster.await_in_sync(TOPIC))
    try:
        nemesis.run(seconds)
    finally:
        for writer in writing:
            writer.stop.set()
        for writer in writing:
            writer.thread.join(120)
    took = time.monotonic() - started
    final = read_everything(bootstrap, TOPIC, partitions=PARTITIONS, client=cluster.user)
    for reader in reading:
        reader.finish(sum(map(len, final.values())))
    return Outcome(report=check(history, final), faults=nemesis.injected, seconds=took)


def everything() -> list[Fault]:
    kills = [Kill(), Kill((0.0, 0.0)), KillController(), PowerCut(TOPIC), ReplacedDisk(), EmptyButEligible()]
    return [
        *kills,
        Pause(),
        LongPause(),
        RollingRestart(),
        Newcomer(TOPIC),
        Changes(TOPIC),
        HostileRequests(),
    ]


def cuts(over: Network) -> list[Fault]:
    return [CutOff(over), CutPair(over), CutOneWay(over), CutOtherWay(over)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="faults whose name has this in it")
    parser.add_argument("--synced", action="store_true", help="acknowledgements wait for disks (flush.messages=1)")
    parser.add_argument("--secure", action="store_true", help="with TLS, logins and an authorizer, everywhere")
    parser.add_argument("--keep", type=Path, default=None, help="where the nodes' data and logs go in any case")
    arguments = parser.parse_args()
    seed = int(time.time()) if arguments.seed is None else arguments.seed
    print(f"seed {seed}", flush=True)
    outcome: Outcome | None = None

    def keep() -> None:
        """What is needed to explain an anomaly goes with the nodes' file systems, and with them the chance."""
        if arguments.keep or outcome is None or not outcome.report.is_clean:
            kept = arguments.keep or Path(tempfile.mkdtemp(prefix=f"tidemark-chaos-{seed}-"))
            shutil.copytree(directory, kept, dirs_exist_ok=True)
            print(f"the nodes' data and logs are kept in {kept}", flush=True)

    with ExitStack() as opened:
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-chaos-")))
        faults = everything()
        if network.available():
            over = opened.enter_context(Network(NODES + 1))
            faults += cuts(over)
            cluster = _new_cluster(directory, secure=arguments.secure, over=over)
            metadata_apart(cluster)
            opened.enter_context(disks_of_their_own(cluster, megabytes=64 + round(16 * arguments.minutes)))
            faults += [FullDisk(TOPIC), FullController(TOPIC)]
        else:
            print("without cuts in the network and full disks: they need Linux and root", flush=True)
            cluster = _new_cluster(directory, secure=arguments.secure)
            metadata_apart(cluster)
        if isinstance(cluster, SecureCluster):
            faults.append(RenewedCertificates(cluster.renew_certificates))
        if preloaded.available():
            disks = with_bad_syncs(cluster, directory)
            faults += [FailedSyncs(TOPIC, disks), SlowSyncs(disks), HungController(TOPIC, disks)]
            faults.append(JumpClock(with_clocks(cluster, directory)))
        else:
            print("without failing syncs and clocks that jump: they need a C compiler", flush=True)
        opened.callback(keep)
        opened.callback(cluster.close)
        cluster.start()
        faults = [each for each in faults if arguments.only in each.name]
        settings = {"flush_messages": "1"} if arguments.synced else {}
        outcome = run(cluster, faults, seconds=arguments.minutes * 60, seed=seed, settings=settings)
    if arguments.keep or not outcome.report.is_clean:
        print(outcome.diary())
    print(outcome)
    if outcome.longest_gap >= SERVES_AGAIN_SECONDS_MAX:
        print(f"it took longer than {SERVES_AGAIN_SECONDS_MAX:.0f} s to serve again")
        return 1
    return 0 if outcome.report.is_clean else 1


def _new_cluster(directory: Path, *, secure: bool, over: Network | None = None) -> Cluster:
    kind = SecureNode if secure else ClusterNode
    make = kind if over is None else partial(_on, over, kind)
    if not secure:
        return Cluster(directory, nodes=NODES, make=make)
    hosts = () if over is None else tuple(map(over.host, range(1, NODES + 2)))
    return SecureCluster(directory, nodes=NODES, make=make, hosts=hosts)


def _on(
    over: Network, kind: type[ClusterNode], path: Path, settings: Mapping[str, str] | None, *, node_id: int
) -> ClusterNode:
    place = min(node_id, NODES + 1)  # those who join come one after the other, under ever new ids
    return kind(path, settings, node_id=node_id, host=over.host(place), prefix=over.inside(place))


def with_clocks(cluster: Cluster, directory: Path) -> dict[int, Clock]:
    """From their next start on, the nodes see clocks that can be set."""
    library = preloaded.build("clock", directory)
    clocks = {node.node_id: Clock(library, node.directory) for node in cluster}
    for node in cluster:
        _preload(node, clocks[node.node_id].environment)
    return clocks


def with_bad_syncs(cluster: Cluster, directory: Path) -> dict[int, BadSyncs]:
    """From their next start on, the nodes' disks fail and stall as told."""
    library = preloaded.build("bad_syncs", directory)
    disks = {node.node_id: BadSyncs(library, node.directory) for node in cluster}
    for node in cluster:
        _preload(node, disks[node.node_id].environment)
    return disks


def _preload(node: ClusterNode, environment: Mapping[str, str]) -> None:
    others = node.environment.get("LD_PRELOAD", "")
    node.environment.update(environment)
    node.environment["LD_PRELOAD"] = f"{others} {environment['LD_PRELOAD']}".strip()


def metadata_apart(cluster: Cluster) -> None:
    """On a disk of its own, so that the data's can be replaced."""
    for node in cluster:
        path = node.directory / "metadata"
        path.mkdir()
        node.settings["metadata.log.dir"] = str(path)


@contextmanager
def disks_of_their_own(cluster: Cluster, *, megabytes: int) -> Iterator[None]:
    """Each node's data is on a file system of that size."""
    with ExitStack() as mounted:
        for node in cluster:
            for path in map(str, sorted(disks_of(node))):
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", path], check=True)
                mounted.callback(subprocess.run, ["umount", "--lazy", path], check=True)
        yield


if __name__ == "__main__":
    raise SystemExit(main())
