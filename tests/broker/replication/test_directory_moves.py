"""A replica moves to another log directory while it is written to: nothing is missing, whenever it is interrupted."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.replication.directory_moves import DirectoryMoves
from tidemark.broker.replication.sync_threads import PER_DIRECTORY
from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage import Files, LogDirectory
from tidemark.storage.segment import Segment

New = Callable[..., Any]
SMALL = {"internal.segment.bytes": "2000", "index.interval.bytes": "200", "file.delete.delay.ms": "0"}


def new(new_cluster: New, nodes: int = 1, **settings: str) -> Any:
    cluster = new_cluster(nodes=nodes, log_dirs=2, **settings)
    cluster.configure({(TOPIC_RESOURCE, "t"): SMALL})
    return cluster


async def fill(cluster: Any, count: int, leader: int = 1) -> None:
    for number in range(count):
        assert await cluster.acknowledged(leader, cluster.append(leader, b"%d-" % number + bytes(100))) is None


def where(cluster: Any, node_id: int) -> str:
    return os.path.dirname(str(cluster.replica(node_id).log.directory))


def other(cluster: Any, node_id: int) -> Any:
    return next(each for each in cluster.nodes[node_id].table.directories if each.path != where(cluster, node_id))


async def move(cluster: Any, node_id: int) -> None:
    moves = cluster.nodes[node_id].moves
    moves.begin(cluster.replica(node_id), other(cluster, node_id))
    await over(cluster, node_id)


async def over(cluster: Any, node_id: int) -> None:
    await cluster.until(lambda: not cluster.nodes[node_id].moves._tasks)


def on_disk(cluster: Any, node_id: int) -> list[str]:
    paths = [Path(each.path) for each in cluster.nodes[node_id].table.directories]
    return sorted(str(each) for path in paths for each in path.glob("t-0*") if not each.name.endswith("-delete"))


@pytest.mark.parametrize("node_id", [1, 2])
async def test_a_leader_and_a_follower_move_and_move_back_under_load(new_cluster: New, node_id: int) -> None:
    cluster = new(new_cluster, 3)
    await fill(cluster, 60)
    began, told = where(cluster, node_id), []
    cluster.nodes[node_id].roles.placed = lambda replica: told.append(os.path.dirname(replica.log.directory))
    load = asyncio.ensure_future(fill(cluster, 300))
    for _ in range(2):
        before = where(cluster, node_id)
        await move(cluster, node_id)
        assert where(cluster, node_id) != before
        assert on_disk(cluster, node_id) == [cluster.replica(node_id).log.directory]
        assert told[-1] == where(cluster, node_id)
    await load
    assert where(cluster, node_id) == began
    await cluster.until(lambda: cluster.values(node_id) == cluster.values(3))
    assert len(cluster.values(node_id)) == 360
    assert not list(Path(cluster.replica(node_id).log.directory).glob("tidemark.*"))
    assert set(cluster.partition.isr) == {1, 2, 3}


async def test_what_is_synced_with_every_acknowledgement_stays_so(new_cluster: New) -> None:
    cluster = new(new_cluster)
    cluster.configure({(TOPIC_RESOURCE, "t"): {**SMALL, "flush.messages": "1"}})
    load = asyncio.ensure_future(fill(cluster, 200))
    await asyncio.sleep(0)
    await move(cluster, 1)
    await load
    log = cluster.replica(1).log
    assert log.recovery_point == log.end_offset == 200


async def test_a_log_that_has_left_a_disk_does_not_wait_for_it_any_more(new_cluster: New) -> None:
    cluster = new(new_cluster)
    cluster.configure({(TOPIC_RESOURCE, "t"): {**SMALL, "flush.messages": "1"}})
    await fill(cluster, 1)
    left = cluster.nodes[1]._threads.of_log(cluster.replica(1).log)
    await move(cluster, 1)
    hangs = threading.Event()
    for _ in range(PER_DIRECTORY):
        left.submit(hangs.wait)
    try:
        async with asyncio.timeout(20):
            await fill(cluster, 1)
    finally:
        hangs.set()


async def test_what_a_thread_writes_while_a_log_moves_is_in_the_new_directory(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move waits for it, and nothing else does: the disk may hang."""
    cluster = new(new_cluster)
    await fill(cluster, 20)
    partition = cluster.replica(1)
    before = partition.writers
    before.at_once_bytes_max = 0  # as on a slow disk
    batch = build_batch([Record(value=b"late")])
    pending = partition.begin_append(memoryview(batch), read_header(batch), 0)
    goes_on, put = threading.Event(), Segment.put

    def held(segment: Segment, fd: int, data: Any, *, position: int) -> None:
        assert goes_on.wait(10)
        put(segment, fd, data, position=position)

    monkeypatch.setattr(Segment, "put", held)
    writing = asyncio.get_running_loop().run_in_executor(None, pending)
    moves = cluster.nodes[1].moves
    moves.begin(cluster.replica(1), other(cluster, 1))
    await cluster.until(lambda: partition._when_written)
    began = where(cluster, 1)
    goes_on.set()
    await writing
    assert where(cluster, 1) == began
    assert partition.finish_append(pending).base_offset == 20
    await over(cluster, 1)
    assert where(cluster, 1) != began
    assert await cluster.acknowledged(1, cluster.append(1, b"next")) is None
    assert [value[:4] for value in cluster.values(1)[-2:]] == [b"late", b"next"]
    assert partition.writers is not before, "the new directory has its own"


async def test_after_a_restart_the_log_is_as_it_was(new_cluster: New) -> None:
    cluster = new(new_cluster)
    await fill(cluster, 60)
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch(
        [Record(timestamp=now_ms, value=b"idempotent")], producer_id=9, producer_epoch=0, base_sequence=0
    )
    cluster.led(1).append(memoryview(batch), now_ms)
    cluster.led(1).delete_before(33)
    await move(cluster, 1)
    moved_to = where(cluster, 1)
    values = cluster.values(1)
    assert cluster.replica(1).log.start_offset == 33
    for clean in (False, True):
        await cluster.stop(1, clean=clean)
        cluster.start(1)
        assert where(cluster, 1) == moved_to
        assert cluster.replica(1).log.start_offset == 33
        assert cluster.values(1) == values
        assert cluster.replica(1).log.producer(9) is not None
    await fill(cluster, 5)


async def test_killed_at_any_step_everything_is_there_and_the_move_goes_on(
    new_cluster: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new(new_cluster)
    await fill(cluster, 22)
    cluster.led(1).delete_before(3)
    cluster.directories[1].write_checkpoints()
    values = cluster.values(1)
    target = other(cluster, 1).path
    states = photograph(tmp_path, monkeypatch)
    await move(cluster, 1)
    monkeypatch.undo()
    assert len(states) > 20
    names = set()
    await cluster.stop(1)
    for state in states:
        for name in ("1", "1-2"):
            shutil.rmtree(tmp_path / name)
            shutil.copytree(state / name, tmp_path / name)
        names.add(
            tuple(sorted(f"{d} {e.name.rpartition('-')[2]}" for d in ("1", "1-2") for e in (tmp_path / d).glob("t-0*")))
        )
        cluster.start(1)
        assert cluster.values(1) == values
        assert cluster.replica(1).log.start_offset == 3
        cluster.nodes[1].moves.resume()
        await over(cluster, 1)
        assert cluster.values(1) == values
        assert len(on_disk(cluster, 1)) == 1
        assert await cluster.acknowledged(1, cluster.append(1, b"one more")) is None
        await cluster.stop(1)
    cluster.start(1)
    assert where(cluster, 1) == target
    assert len(names) >= 3  # in the old directory, in both, in the new one


async def test_an_old_copy_is_gone_for_good_before_the_mark_goes_that_tells_the_two_apart(
    new_cluster: New, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are on two disks: one may keep what the other loses in a power cut."""
    cluster = new(new_cluster)
    await fill(cluster, 20)
    old = where(cluster, 1)

    async def nothing(*_: object) -> None:
        """The process is killed here."""

    monkeypatch.setattr(DirectoryMoves, "_clear_up", nothing)
    await move(cluster, 1)
    await fill(cluster, 5)
    await cluster.stop(1)
    done: list[tuple[str, str]] = []
    for name in ("remove", "sync_directory"):
        original = getattr(Files, name)

        def call(self: Files, path: str, name: str = name, original: Any = original) -> None:
            done.append((name, path))
            original(self, path)

        monkeypatch.setattr(Files, name, call)
    cluster.start(1)
    assert len(cluster.values(1)) == 25
    mark = next(at for at, (_, path) in enumerate(done) if path.endswith("tidemark.moved"))
    assert ("sync_directory", old) in done[:mark]
    assert done[mark][0] == "remove"


def photograph(root: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What a kill would leave, before each change to a file."""
    states: list[Path] = []

    def watched(name: str) -> Callable[..., Any]:
        original = getattr(Files, name)

        def call(self: Files, *args: Any, **options: Any) -> Any:
            state = root / f"state-{len(states)}"
            for each in ("1", "1-2"):
                shutil.copytree(root / each, state / each)
                (state / each / ".lock").unlink(missing_ok=True)
            states.append(state)
            return original(self, *args, **options)

        return call

    for name in ("rename", "overwrite", "append_to", "remove", "make_directory", "sync_directory", "remove_directory"):
        monkeypatch.setattr(Files, name, watched(name))
    return states


async def test_a_log_that_moves_is_not_cleaned(new_cluster: New) -> None:
    cluster = new(new_cluster)
    cluster.configure({(TOPIC_RESOURCE, "t"): {**SMALL, "cleanup.policy": "compact"}})
    node = cluster.nodes[1]
    for at in range(60):
        batch = build_batch([Record(timestamp=1, key=b"k", value=b"%d" % at + bytes(90))])
        cluster.led(1).append(memoryview(batch), 1)
    cluster.replica(1).log.flush()
    node.moves.under_way["t", 0] = object()
    await node.cleaner.clean_all_due(node.table.config)
    assert len(cluster.values(1)) == 60
    del node.moves.under_way["t", 0]
    await node.cleaner.clean_all_due(node.table.config)
    assert len(cluster.values(1)) < 30
    await move(cluster, 1)
    assert cluster.values(1)[-1] == b"59" + bytes(90)


async def test_a_truncation_in_between_lets_the_move_begin_anew(new_cluster: New) -> None:
    cluster = new(new_cluster, 3)
    await fill(cluster, 60)
    await cluster.until(lambda: cluster.replica(2).log.end_offset == 60)
    moves = cluster.nodes[2].moves
    moves.begin(cluster.replica(2), other(cluster, 2))
    await cluster.until(lambda: "t" in str(moves.under_way) and moves.under_way["t", 0].path)
    await cluster.replica(2)._truncate(lambda: cluster.replica(2).log.truncate_to(20))
    await over(cluster, 2)
    await cluster.until(lambda: len(cluster.values(2)) == 60)
    assert cluster.values(2) == cluster.values(1)


async def test_a_log_that_is_made_later_is_made_where_it_was_wanted(new_cluster: New) -> None:
    cluster = new_cluster(nodes=1, log_dirs=2, topics=("t", "u"))
    node = cluster.nodes[1]
    wanted = node.table.directories[1]
    cluster.drop("u")
    await cluster.until(lambda: not node.roles._to_drop)
    node.moves.prefer(("t", 0), wanted)
    node._logs.delete("t", 0)
    directory = node._logs._directory_for(("t", 0), cluster.partition)
    assert directory is wanted


async def test_a_log_whose_new_disk_is_lost_within_moments_of_the_move_is_not_taken_for_whole(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the old directory lacks what was acknowledged since."""
    cluster = new(new_cluster)
    await fill(cluster, 20)
    old = Path(cluster.replica(1).log.directory)
    other(cluster, 1).id = b"the new disk's.."

    async def nothing(*_: object) -> None:
        """The old directory is not removed any more."""

    monkeypatch.setattr(DirectoryMoves, "_clear_up", nothing)
    await move(cluster, 1)
    await fill(cluster, 5)
    await cluster.stop(1)
    cluster.log_dirs = 1
    cluster.start(1)
    reason = cluster.nodes[1].table.topics["t"].offline[0]
    assert b"the new disk's..".hex() in reason
    assert f"remove {old / 'tidemark.moving'}" in reason

    (old / "tidemark.moving").unlink()  # as it says: whoever does so knows that the disk is lost
    cluster.nodes[1].roles.retries.retry()
    await cluster.until(lambda: not cluster.nodes[1].table.topics["t"].offline)
    assert len(cluster.values(1)) == 20


async def test_a_move_that_is_given_up_leaves_no_note(new_cluster: New, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = new(new_cluster)
    await fill(cluster, 20)
    failures = [OSError(errno.ENOSPC, "full"), None]
    receive = LogDirectory.receive

    def fail_once(*args: Any) -> None:
        assert list(Path(cluster.replica(1).log.directory).glob("tidemark.moving"))
        if (error := failures.pop(0)) is not None:
            raise error
        receive(*args)

    monkeypatch.setattr(LogDirectory, "receive", fail_once)
    monkeypatch.setattr("tidemark.broker.replication.directory_moves.RETRY_SECONDS", 0.3)
    cluster.nodes[1].moves.begin(cluster.replica(1), other(cluster, 1))
    await cluster.until(lambda: len(failures) == 1)
    await cluster.until(lambda: not list(Path(cluster.replica(1).log.directory).glob("tidemark.*")))
    await over(cluster, 1)
    assert failures == []
    assert len(cluster.values(1)) == 20


async def test_a_disk_that_does_not_read_is_blamed_and_not_the_one_that_the_log_moves_to(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new(new_cluster)
    await fill(cluster, 60)
    source, target = cluster.nodes[1].table.directories[0].path, other(cluster, 1).path
    assert where(cluster, 1) == source
    open_to_read = Files.open_to_read

    def fail(self: Files, path: str) -> Any:
        if path.startswith(source + os.sep):
            raise OSError(errno.EIO, "a bad sector", path)
        return open_to_read(self, path)

    monkeypatch.setattr(Files, "open_to_read", fail)
    await move(cluster, 1)
    await cluster.until(lambda: cluster.nodes[1].table.offline_directories)
    assert list(cluster.nodes[1].table.offline_directories) == [source]
    assert [each.path for each in cluster.nodes[1].table.directories] == [target]


@pytest.mark.parametrize("reader", ["cleaner", "scrubber"])
async def test_a_disk_that_does_not_read_what_is_cleaned_or_scrubbed_goes_offline(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch, reader: str
) -> None:
    cluster = new(new_cluster, 1, **{"log.scrub.bytes.per.second": "100000000"})
    cluster.configure({(TOPIC_RESOURCE, "t"): {**SMALL, "cleanup.policy": "compact"}})
    for at in range(60):
        batch = build_batch([Record(timestamp=1, key=b"k", value=b"%d" % at + bytes(90))])
        cluster.led(1).append(memoryview(batch), 1)
    cluster.replica(1).log.flush()
    broken = Files()
    monkeypatch.setattr(Files, "open_to_read", _fail_to_read)
    monkeypatch.setattr("tidemark.storage.cleaning.running.REAL_FILES", broken)  # on a thread of this process
    monkeypatch.setattr("tidemark.storage.scrubbing.running.REAL_FILES", broken)
    node, failed = cluster.nodes[1], where(cluster, 1)
    if reader == "cleaner":
        await node.cleaner.clean_all_due(node.table.config)
    else:
        await node.scrubber.scrub_all_due(lambda: node.table.config)
    await cluster.until(lambda: list(node.table.offline_directories) == [failed])


def _fail_to_read(_files: Files, path: str) -> Any:
    raise OSError(errno.EIO, "a bad sector", path)


async def test_the_old_directory_stays_until_the_controller_knows_of_the_new_one(new_cluster: New) -> None:
    cluster = new(new_cluster)
    await fill(cluster, 20)
    old, target = Path(cluster.replica(1).log.directory), other(cluster, 1)
    target.id = b"the new disk's.."
    cluster.become(directories=(b"the old disk's..",))
    cluster.nodes[1].moves.begin(cluster.replica(1), target)
    await cluster.until(lambda: where(cluster, 1) == target.path)
    await fill(cluster, 5)
    assert (old / "tidemark.moving").exists()
    await cluster.stop(1, clean=False)
    assert (old / "tidemark.moving").exists()
    cluster.start(1)  # finds both, and which is the newer
    assert len(cluster.values(1)) == 25
    assert not old.exists()

    cluster.become(directories=(b"where it is now.",))
    other(cluster, 1).id = b"the old disk's.."
    cluster.nodes[1].moves.begin(cluster.replica(1), other(cluster, 1))
    await cluster.until(lambda: where(cluster, 1) == str(old.parent))
    cluster.become(directories=(b"the old disk's..",))
    await over(cluster, 1)
    assert on_disk(cluster, 1) == [str(old)]
    assert len(cluster.values(1)) == 25
