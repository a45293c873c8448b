"""A change of roles while a thread writes a batch: the disk decides how long that takes, and nothing else waits."""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.replication import role_assignment
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.protocol.records import BatchHeader, Record, build_batch, read_header
from tidemark.storage import LogOffline, PendingAppend, StorageError, WriteFailed
from tidemark.storage.segment import Segment

from .conftest import Cluster, now_ms

New = Callable[..., Cluster]


class HeldDisk:
    """Threads that write wait until they are told to go on, and fail if there is an error."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self.error: StorageError | None = None
        put = Segment.put

        def held(segment: Segment, fd: int, data: Any, *, position: int) -> None:
            self.begun.set()
            assert self.goes_on.wait(10)
            if self.error is not None:
                raise self.error
            put(segment, fd, data, position=position)

        monkeypatch.setattr(Segment, "put", held)


class Batch:
    """Waits for its turn in a partition, and keeps what became of it."""

    def __init__(self, cluster: Cluster, node_id: int, value: bytes) -> None:
        self.outcome: object = None
        self._partition = cluster.led(node_id)
        self._batch = build_batch([Record(value=value)])
        cluster.nodes[node_id].table.append_queues.join(self._partition, None, self)

    @property
    def header(self) -> BatchHeader:
        return read_header(self._batch)

    def begin(self) -> PendingAppend | None:
        writers = self._partition.writers
        writers.at_once_bytes_max = 0  # as on a slow disk
        try:
            pending = self._partition.begin_append(memoryview(self._batch), self.header, now_ms())
        finally:
            writers.at_once_bytes_max = sys.maxsize
        assert isinstance(pending, PendingAppend)
        return pending

    def finish(self, pending: PendingAppend) -> None:
        try:
            self.outcome = self._partition.finish_append(pending).base_offset
        except StorageError as error:
            self.outcome = error

    def refuse(self) -> None:
        self.outcome = "refused"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> HeldDisk:
    return HeldDisk(monkeypatch)


@pytest.fixture
async def cluster(new_cluster: New, disk: HeldDisk) -> Any:
    """Whose first node leads, has committed one record, and writes the next: it goes on when the disk does."""
    cluster = new_cluster()
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    await begin_write(cluster, disk)
    yield cluster
    disk.goes_on.set()


async def begin_write(cluster: Cluster, disk: HeldDisk) -> Batch:
    disk.begun.clear()
    batch = Batch(cluster, 1, b"b")
    await cluster.until(disk.begun.is_set)
    return batch


def hosted(cluster: Cluster) -> HostedTopic:
    return cluster.nodes[1].table.topics["t"]


async def assumed(cluster: Cluster) -> Any:
    """The role of the first node, as soon as it has one."""
    await cluster.until(lambda: hosted(cluster).replica(0) is not None)
    return cluster.replica(1)


async def test_the_next_leadership_begins_after_the_batch(cluster: Cluster, disk: HeldDisk) -> None:
    led, failed = cluster.led(1), list[Exception | None]()
    led.await_high_watermark(1, failed.append)
    cluster.become(leader=1)
    assert led.is_over
    assert len(failed) == 1
    assert hosted(cluster).replica(0) is None
    disk.goes_on.set()
    new = await assumed(cluster)
    assert isinstance(new, Partition)
    assert new.log is led.log
    assert new.leadership.start_offset == new.log.end_offset == 2
    assert new.log.epoch_end_offset(0) == (0, 2)
    await cluster.until(lambda: cluster.values(2) == cluster.values(3) == [b"a", b"b"])


async def test_a_leader_that_is_to_follow_agrees_with_its_leader_after_the_batch(
    cluster: Cluster, disk: HeldDisk
) -> None:
    led = cluster.led(1)
    cluster.become(leader=2)
    assert led.is_over
    assert hosted(cluster).replica(0) is None
    cluster.append(2, b"c")
    disk.goes_on.set()
    followed = await assumed(cluster)
    assert isinstance(followed, Followed)
    assert followed.log is led.log
    await cluster.until(lambda: cluster.values(1) == [b"a", b"c"])


async def test_the_role_that_was_put_off_knows_what_is_committed(cluster: Cluster, disk: HeldDisk) -> None:
    cluster.cut.add((1, 2))
    cluster.become(leader=2)
    disk.goes_on.set()
    assert (await assumed(cluster)).high_watermark == 1


async def test_another_in_sync_set_ends_no_leadership(cluster: Cluster) -> None:
    led = cluster.led(1)
    cluster.become(isr=(1, 2))
    assert cluster.led(1) is led
    assert not led.is_over
    assert led.leadership.isr == (1, 2)


async def test_the_newest_of_the_roles_that_were_put_off_counts(cluster: Cluster, disk: HeldDisk) -> None:
    for leader in (2, 1, 3):
        cluster.become(leader=leader)
    disk.goes_on.set()
    followed = await assumed(cluster)
    assert (followed.leader, followed.leader_epoch) == (3, 3)


async def test_a_replica_that_goes_meanwhile_goes_at_once_and_returns_empty(
    cluster: Cluster, disk: HeldDisk, tmp_path: Path
) -> None:
    led = cluster.led(1)
    cluster.become(leader=2)
    cluster.become(replicas=(2, 3), isr=(2, 3))
    assert not (tmp_path / "1" / "t-0").exists()
    cluster.become(replicas=(2, 3, 1))
    new = cluster.replica(1)
    assert new.log is not led.log
    disk.goes_on.set()
    await cluster.until(lambda: led.append_queue is None)
    assert cluster.replica(1) is new
    await cluster.until(lambda: cluster.values(1) == [b"a"])


@pytest.mark.parametrize("is_put_off", [True, False])
async def test_a_topic_that_is_made_again_does_not_wait_for_what_is_written_to_the_old_ones_log(
    cluster: Cluster, disk: HeldDisk, is_put_off: bool
) -> None:
    led = cluster.led(1)
    if is_put_off:
        cluster.become(leader=1)
    cluster.drop("t")
    cluster.make_again("t")
    new = cluster.led(1)
    assert new.log is not led.log
    disk.goes_on.set()
    await cluster.until(lambda: led.append_queue is None)
    assert cluster.led(1) is new
    assert new.log.end_offset == 0
    assert await cluster.acknowledged(1, cluster.append(1, b"c")) is None
    assert cluster.values(1) == [b"c"]


async def test_a_batch_for_which_there_was_no_room_is_not_in_the_next_leadership(
    cluster: Cluster, disk: HeldDisk
) -> None:
    cluster.become(leader=1)
    disk.error = WriteFailed("the disk is full")
    disk.goes_on.set()
    new = await assumed(cluster)
    assert new.leadership.start_offset == 1
    assert cluster.values(1) == [b"a"]


async def test_a_disk_that_breaks_under_a_role_that_was_put_off_is_offline(cluster: Cluster, disk: HeldDisk) -> None:
    cluster.become(leader=1)
    disk.error = WriteFailed("the disk is broken")
    disk.error.__cause__ = OSError(errno.EIO, "the disk is broken")
    disk.goes_on.set()
    await cluster.until(lambda: not cluster.nodes[1].table.directories)
    assert 0 in hosted(cluster).offline
    await cluster.until(lambda: cluster.partition.leader != 1)


async def test_a_role_on_a_log_that_the_write_left_in_doubt_is_left_to_another(
    cluster: Cluster, disk: HeldDisk, caplog: pytest.LogCaptureFixture
) -> None:
    led = cluster.led(1)
    cluster.become(leader=1)
    disk.error = LogOffline("the write failed")
    disk.goes_on.set()
    await cluster.until(lambda: cluster.partition.leader != 1)
    assert led.log.is_offline
    assert "is left to another leader" in caplog.text
    followed = await assumed(cluster)
    assert followed.log is not led.log
    await cluster.until(lambda: cluster.values(1) == [b"a"])


async def test_a_leadership_that_waits_for_a_disk_that_hangs_is_left_to_another(
    cluster: Cluster, disk: HeldDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(role_assignment, "STALLED_SECONDS", 0.02)
    answers = iter(("stale", "agree"))
    cluster.answer_alter = lambda _: next(answers, "agree")
    cluster.become(leader=1)
    await cluster.until(lambda: cluster.partition.leader != 1)
    assert "is left to another leader: its disk does not finish" in caplog.text
    assert not disk.goes_on.is_set()
    leader = cluster.partition.leader
    cluster.append(leader, b"c")
    disk.goes_on.set()
    assert (await assumed(cluster)).leader == leader
    await cluster.until(lambda: cluster.values(1) == [b"a", b"c"])


async def test_a_leadership_that_has_begun_in_time_stays(
    cluster: Cluster, disk: HeldDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_assignment, "STALLED_SECONDS", 0.05)
    cluster.become(leader=1)
    disk.goes_on.set()
    led = await assumed(cluster)
    await asyncio.sleep(0.1)
    assert cluster.led(1) is led
    assert cluster.altered == []


async def test_a_follower_waits_for_its_disk_as_long_as_it_takes(
    cluster: Cluster, disk: HeldDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_assignment, "STALLED_SECONDS", 0.02)
    cluster.become(leader=1)
    cluster.become(leader=2)
    await asyncio.sleep(0.1)
    assert not any(1 not in members for members in cluster.altered)


async def test_a_directory_that_fails_does_not_wait_for_a_write_in_it(cluster: Cluster, disk: HeldDisk) -> None:
    led = cluster.led(1)
    cluster.become(leader=1)
    cluster.nodes[1].failures._fail(cluster.directories[1], "gone")
    assert 0 in hosted(cluster).offline
    assert led.log.is_appending
    await cluster.until(lambda: cluster.partition.leader != 1)
    assert hosted(cluster).replica(0) is None


async def test_a_log_that_is_offline_already_waits_for_no_write(cluster: Cluster, disk: HeldDisk) -> None:
    """Its sync failed, say, and the write hangs."""
    led = cluster.led(1)
    led.log.fail("a sync failed")
    cluster.become(leader=2)
    assert "a sync failed" in hosted(cluster).offline[0]
    assert led.log.is_appending


async def test_a_superseded_leadership_has_no_successor_before_the_metadata_says_so(
    cluster: Cluster, disk: HeldDisk
) -> None:
    led = cluster.led(1)
    cluster.nodes[1].roles.superseded(led)
    disk.goes_on.set()
    await cluster.until(lambda: led.append_queue is None)
    await asyncio.sleep(0)
    assert hosted(cluster).replica(0) is None
    cluster.become(leader=2)
    assert cluster.replica(1).leader == 2


async def test_a_role_waits_for_what_a_superseded_leadership_has_begun_to_write(
    cluster: Cluster, disk: HeldDisk
) -> None:
    cluster.nodes[1].roles.superseded(cluster.led(1))
    cluster.become(leader=2)
    assert hosted(cluster).replica(0) is None
    disk.goes_on.set()
    assert (await assumed(cluster)).leader == 2


async def test_a_node_that_stops_assumes_no_role_that_was_put_off(cluster: Cluster, disk: HeldDisk) -> None:
    led = cluster.led(1)
    cluster.become(leader=2)
    async with asyncio.timeout(10):
        await cluster.nodes[1].roles.stop_following()
    assert not disk.goes_on.is_set(), "that is for whoever closes the log"
    disk.goes_on.set()
    await cluster.until(lambda: led.append_queue is None)
    await asyncio.sleep(0)
    assert hosted(cluster).replica(0) is None


async def test_what_waits_for_its_turn_does_not_wait_for_the_disk(cluster: Cluster, disk: HeldDisk) -> None:
    waits = [Batch(cluster, 1, b"c"), Batch(cluster, 1, b"d")]
    led = cluster.led(1)
    cluster.become(leader=2)
    assert [each.outcome for each in waits] == ["refused"] * 2
    assert len(led.append_queue or ()) == 1, "what is being written may be in the log in the end"
    disk.goes_on.set()
    await cluster.until(lambda: led.append_queue is None)
