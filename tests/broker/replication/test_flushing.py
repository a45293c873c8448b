"""Group commit: what counts as synced, and what happens when a sync cannot begin or ends too late."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.config import TopicConfig, load_config
from tidemark.broker.replication import fetcher, flushing
from tidemark.broker.replication.flushing import GroupCommit
from tidemark.broker.replication.leadership import Leadership
from tidemark.broker.replication.partition import Partition
from tidemark.protocol.records import Record, build_batch
from tidemark.storage import Log, LogConfig, LogDirectory
from tidemark.storage.files import Files

New = Callable[..., Any]
NOW = 1_700_000_000_000


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture
def directory(tmp_path: Path) -> LogDirectory:
    return LogDirectory.open(str(tmp_path), now_ms=lambda: NOW)


def open_log(directory: LogDirectory) -> Log:
    return directory.open_log("t", 0, config=LogConfig(flush_messages=1), topic_id=bytes(range(16)))


def lead(log: Log, executor: ThreadPoolExecutor) -> Partition:
    broker = load_config(overrides={"node.id": "0", "log.dirs": "unused"})
    config = TopicConfig.resolve(broker, {"flush.messages": "1"})
    return Partition(
        topic="t", topic_id=bytes(range(16)), index=0, leader_epoch=0, log=log, config=config, executor=executor
    )


def append(partition: Partition, value: bytes) -> int:
    return partition.append(memoryview(build_batch([Record(value=value)])), NOW).last_offset


async def acknowledged(partition: Partition, offset: int) -> Exception | None:
    reached: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    partition.await_high_watermark(offset, reached.set_result)
    return await asyncio.wait_for(reached, 5)


async def test_a_sync_that_cannot_begin_is_tried_again(
    directory: LogDirectory, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    partition = lead(log, executor)
    real, failures = Log.begin_flush, iter([OSError(errno.EMFILE, "too many open files")])

    def begin_flush(self: Log, **how: bool) -> Any:
        for error in failures:
            raise error
        return real(self, **how)

    monkeypatch.setattr(Log, "begin_flush", begin_flush)
    assert await acknowledged(partition, append(partition, b"a")) is None
    assert await acknowledged(partition, append(partition, b"b")) is None


async def test_a_sync_that_lacks_a_descriptor_for_a_directory_is_repeated(
    directory: LogDirectory, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    partition = lead(log, executor)
    real, failures = Files.sync_directory, iter([OSError(errno.EMFILE, "too many open files")])

    def sync_directory(self: Files, path: str) -> None:
        for error in failures:
            raise error
        real(self, path)

    monkeypatch.setattr(Files, "sync_directory", sync_directory)
    assert await acknowledged(partition, append(partition, b"a")) is None
    assert not log.is_offline


async def test_what_an_unclean_stop_left_unsynced_is_synced_before_it_counts(
    tmp_path: Path, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = LogDirectory.open(str(tmp_path), now_ms=lambda: NOW)
    log = directory.open_log("t", 0, config=LogConfig(), topic_id=bytes(range(16)))
    log.start_epoch(0)
    log.append_replicated(_replicated(b"unsynced"))
    directory.close(clean=False)
    synced = threading.Event()

    def fdatasync(fd: int) -> None:
        assert synced.wait(10)
        os.fdatasync(fd)

    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    partition = lead(open_log(LogDirectory.open(str(tmp_path), now_ms=lambda: NOW)), executor)
    assert partition.log.end_offset == 1
    assert partition.must_wait(0), "a retry of the record must not be acknowledged yet"
    synced.set()
    assert await acknowledged(partition, 0) is None


async def test_a_sync_begun_before_a_truncation_does_not_count_for_what_is_written_after_it(
    directory: LogDirectory, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(directory)
    flushed: list[int] = []
    done = asyncio.Event()

    def note(end_offset: int) -> None:
        flushed.append(end_offset)
        if end_offset == log.end_offset:
            done.set()

    commit = GroupCommit(log, executor, flushed=note, failed=lambda error: pytest.fail(str(error)))
    gate = threading.Event()
    count = 0

    def fdatasync(fd: int) -> None:
        nonlocal count
        if threading.current_thread() is not threading.main_thread():  # the truncation's own sync does not wait
            count += 1
            assert gate.wait(10)
        os.fdatasync(fd)

    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    log.append_replicated(_replicated(b"dropped"))
    commit.request()
    log.truncate_to(0)
    log.append_replicated(_replicated(b"written after"))
    commit.request()
    gate.set()
    await asyncio.wait_for(done.wait(), 5)
    assert flushed[0] == 0, "the first sync covered only what is gone"
    assert flushed[-1] == 1
    assert count >= 2


def _replicated(value: bytes) -> bytearray:
    return build_batch([Record(value=value)])


async def test_deleting_a_topic_while_a_follower_syncs_does_not_stop_its_fetcher(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=2, topics=("t", "u"), **{"log.flush.interval.messages": "1"})
    follower = cluster.replica(2)
    gate, reached = threading.Event(), threading.Event()
    directory = follower.log.directory

    def fdatasync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(directory):
            reached.set()
            assert gate.wait(10)
        os.fdatasync(fd)

    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    cluster.append(1, b"a")
    await cluster.until(reached.is_set)
    cluster.drop("t")
    gate.set()
    last = cluster.append(1, b"b", topic="u")
    assert await cluster.acknowledged(1, last, topic="u") is None


async def test_a_follower_tells_of_what_an_unclean_stop_left_unsynced_only_when_it_is_synced(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=2, **{"log.flush.interval.messages": "1", "replica.fetch.backoff.ms": "20"})
    cluster.cut |= {(1, 2), (2, 1)}
    follower = cluster.replica(2)
    gate = threading.Event()
    directory = follower.log.directory

    def fdatasync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(directory):
            assert gate.wait(10)
        os.fdatasync(fd)

    last = cluster.append(1, b"unsynced")
    await cluster.until(lambda: cluster.led(1)._flushed_end == 1)
    [slice_] = cluster.led(1).log.read(offset=last, limit_bytes=1 << 20)
    follower.log.append_replicated(os.pread(slice_.file.fileno(), slice_.length, slice_.position))
    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    cluster.cut.clear()
    for _ in range(200):
        await asyncio.sleep(0.001)
        assert cluster.led(1).must_wait(last), "it is on one disk"
    gate.set()
    assert await cluster.acknowledged(1, last) is None


async def test_a_follower_whose_disk_hangs_follows_on_its_other_disks(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "SYNC_SECONDS_MAX", 0.01)
    cluster = new_cluster(nodes=2, topics=("t", "u"), **{"log.flush.interval.messages": "1"})
    gate, reached = threading.Event(), threading.Event()
    directory = cluster.replica(2).log.directory

    def fdatasync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(directory):
            reached.set()
            assert gate.wait(10)
        os.fdatasync(fd)

    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    stuck = cluster.append(1, b"a")
    await cluster.until(reached.is_set)
    assert await cluster.acknowledged(1, cluster.append(1, b"b", topic="u"), topic="u") is None
    assert cluster.led(1).must_wait(stuck)
    gate.set()
    assert await cluster.acknowledged(1, stuck) is None


async def test_a_leader_whose_disk_does_not_finish_a_sync_leaves_the_partition_to_another(
    directory: LogDirectory, executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flushing, "STALLED_SECONDS", 0.01)
    left: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
    gate = threading.Event()

    def fdatasync(fd: int) -> None:
        assert gate.wait(10)
        os.fdatasync(fd)

    partition = lead(open_log(directory), executor)
    partition.fails = lambda _partition, error: None if left.done() else left.set_result(error)
    other_disks = iter([False, True, True])
    monkeypatch.setattr(Leadership, "another_has_more_than", lambda _self, _offset: next(other_disks, True))
    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    offset = append(partition, b"waits")
    waiting = asyncio.create_task(acknowledged(partition, offset))
    assert "does not finish a sync" in str(await asyncio.wait_for(left, 5))
    assert not waiting.done(), "nothing is acknowledged before the sync"
    gate.set()
    assert await waiting is None
