"""What disks do: fill up under the controller, fail or stall on a sync, lose pages at a power cut, get replaced."""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from harness.bad_syncs import BadSyncs
from harness.cluster import Cluster, ClusterNode

PAGE_BYTES = 4096
REVIVED_SECONDS_MAX = 60
STOPPING = "tidemark.broker: stopping"
PAST_THE_SESSION_SECONDS = (12.0, 16.0)


def metadata_of(node: ClusterNode) -> Path:
    return Path(node.settings.get("metadata.log.dir", node.data))


def disks_of(node: ClusterNode) -> set[Path]:
    return {node.data, metadata_of(node)}


@contextmanager
def full(directory: Path) -> Iterator[None]:
    """A file system of its own that has no room left."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    try:
        yield
    finally:
        ballast.unlink()


def revive(cluster: Cluster, node: ClusterNode, topic: str) -> None:
    """A broker that could not write its metadata stops, as it should; an operator starts it again. Until it has stopped
    it may still count as in sync: a controller that cannot write cannot say otherwise, either."""
    deadline = time.monotonic() + REVIVED_SECONDS_MAX
    while True:
        if node.is_running and STOPPING in node.log_since_start:
            node.await_exit()
        if not node.is_running:
            node.close()
            node.start()
        elif all(len(isr) == len(cluster.nodes) for isr in cluster.in_sync(topic).values()):
            return
        assert time.monotonic() < deadline, f"node {node.node_id} does not come back after its disk was bad"
        time.sleep(0.2)


class FullDisk:
    name = "full disk"

    def __init__(self, topic: str, seconds: tuple[float, float] = (3.0, 8.0)) -> None:
        self._topic = topic
        self._seconds = seconds

    def choose(self, cluster: Cluster, random: Random) -> ClusterNode:
        return random.choice(list(cluster.nodes.values()))

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = self.choose(cluster, random)
        with ExitStack() as filled:
            for directory in disks_of(node):
                filled.enter_context(full(directory))
            time.sleep(random.uniform(*self._seconds))
        revive(cluster, node, self._topic)


class FullController:
    """Its metadata cannot be saved for longer than a session. If it went on as controller, every lease would end."""

    name = "full disk on the controller, past the session"

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = cluster.nodes[cluster.await_controller()]
        with full(metadata_of(node)):
            something_to_save(cluster, self._topic, random)
            time.sleep(random.uniform(*PAST_THE_SESSION_SECONDS))
        revive(cluster, node, self._topic)


class HungController:
    """As `FullController`, but the disk does not even say so: a sync that was begun does not end."""

    name = "hung disk on the controller, past the session"

    def __init__(self, topic: str, disks: Mapping[int, BadSyncs]) -> None:
        self._topic = topic
        self._disks = disks

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node_id = cluster.await_controller()
        if node_id not in self._disks:
            return  # one that has joined meanwhile
        seconds = random.uniform(*PAST_THE_SESSION_SECONDS)
        self._disks[node_id].slow(round(seconds * 1000))
        try:
            something_to_save(cluster, self._topic, random)
            time.sleep(seconds)
        finally:
            self._disks[node_id].heal()
        revive(cluster, cluster.nodes[node_id], self._topic)


def something_to_save(cluster: Cluster, topic: str, random: Random) -> None:
    """A change of the metadata, asked for and not waited for: whether it comes about is not the question."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    value = str(random.randrange(10**9, 2 * 10**9))
    resource.add_incremental_config(ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET))
    cluster.admin().incremental_alter_configs([resource])


class FailedSyncs:
    """EIO from every fsync for a while. After one nobody knows what is on the disk: the broker must not pretend."""

    name = "fsync fails"

    def __init__(self, topic: str, disks: Mapping[int, BadSyncs]) -> None:
        self._topic = topic
        self._disks = disks

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = cluster.nodes[random.choice(sorted(self._disks))]
        self._disks[node.node_id].fail()
        try:
            time.sleep(random.uniform(1.0, 4.0))
            if random.random() < 0.5:  # a clean stop that cannot sync is no clean stop
                node.ask_to_stop()
                node.await_exit()
        finally:
            self._disks[node.node_id].heal()
        revive(cluster, node, self._topic)


class SlowSyncs:
    name = "fsync takes seconds"

    def __init__(self, disks: Mapping[int, BadSyncs]) -> None:
        self._disks = disks

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node_id = random.choice(sorted(self._disks))
        self._disks[node_id].slow(random.choice((300, 1500, 6000)))
        try:
            time.sleep(random.uniform(6.0, 12.0))
        finally:
            self._disks[node_id].heal()


class PowerCut:
    """kill -9, and of what was not synced some pages are lost: zeros in the middle, or the end missing."""

    name = "power cut"

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = random.choice(list(cluster.nodes.values()))
        node.kill()
        for directory in sorted(node.data.glob(f"{self._topic}-*")):
            lose_pages(directory, synced=_recovery_point(node.data, directory.name), random=random)
        node.start()


def lose_pages(directory: Path, *, synced: int, random: Random) -> None:
    """`synced` is the offset up to which the log is known to be on the disk."""
    segments = sorted(directory.glob("*.log"))
    unsynced = [
        path for path, following in zip(segments, [*segments[1:], None], strict=True) if _ends_after(following, synced)
    ]
    for path in unsynced:
        first = _position_of(path, synced)
        size = path.stat().st_size
        if size <= first or random.random() < 0.3:
            continue
        with path.open("r+b") as file:
            at = random.randrange(first, size)
            if random.random() < 0.5:
                file.truncate(at)
            else:
                file.seek(max(first, at // PAGE_BYTES * PAGE_BYTES))
                file.write(bytes(min(PAGE_BYTES, size - file.tell())))


def _ends_after(following: Path | None, offset: int) -> bool:
    return following is None or int(following.stem) > offset


def _position_of(path: Path, offset: int) -> int:
    """Where the first batch at or after an offset begins."""
    data = path.read_bytes()
    at = 0
    while at + 12 <= len(data) and int.from_bytes(data[at : at + 8], "big") < offset:
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return at


def _recovery_point(data: Path, name: str) -> int:
    """As the broker wrote it down: "topic partition offset" lines after a version and a count."""
    try:
        lines = (data / "recovery-point-offset-checkpoint").read_text().splitlines()[2:]
    except FileNotFoundError:
        return 0
    points = {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, lines)}
    return points.get(name, 0)


class ReplacedDisk:
    """The data disk is replaced by an empty one. The metadata is on another disk and stays."""

    name = "an empty data disk"

    def __call__(self, cluster: Cluster, random: Random) -> None:
        node = random.choice(list(cluster.nodes.values()))
        if random.random() < 0.5:
            node.kill()
        else:
            node.stop()
        wipe(node)
        node.start()


class EmptyButEligible:
    """The last but one to stop did so cleanly and is eligible to lead; then its data disk is replaced. The last one is
    killed, and stays away for a while: nobody but an empty log asks for the lead."""

    name = "an empty data disk on an eligible leader"
    stops_everything = True

    def __call__(self, cluster: Cluster, random: Random) -> None:
        first, eligible, last = random.sample(list(cluster.nodes.values()), 3)
        first.stop()
        eligible.stop()
        last.kill()
        wipe(eligible)
        for node in (first, eligible):
            node.begin()
        time.sleep(random.uniform(*PAST_THE_SESSION_SECONDS))
        last.begin()
        for node in (first, eligible, last):
            node.await_ready()


def wipe(node: ClusterNode) -> None:
    for path in list(node.data.iterdir()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
