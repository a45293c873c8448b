"""Files that are no more part of a log: they go in the order in which they left it, and nothing else goes."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tidemark.storage import Files, LogConfig, LogDirectory, LogOffline, moving
from tidemark.storage.deletion import PendingDeletions

T0 = 1_700_000_000_000
DELAY_MS = 60_000
CONFIG = LogConfig(segment_bytes=2200, file_delete_delay_ms=DELAY_MS)


class Watched(Files):
    """Tells before it changes a name, and refuses those that it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.before_change = lambda: None
        self.refuses = ""
        self.renamed: list[str] = []

    def rename(self, source: str, target: str) -> None:
        if self.refuses and self.refuses in source:
            raise OSError(errno.EIO, "Input/output error", source)
        self.before_change()
        self.renamed.append(os.path.basename(source))
        super().rename(source, target)

    def remove(self, path: str) -> None:
        if self.exists(path):
            self.before_change()
        super().remove(path)


@pytest.fixture
def disk() -> Watched:
    return Watched()


def fill(log, make_batch, append):
    """Five segments of two batches; one record a batch."""
    for number in range(10):
        batch = make_batch(1, size=1000, timestamp=T0 + number, producer_id=1, sequence=number)
        append(log, batch, leader_epoch=number // 3)
    assert [each.base_offset for each in log.segments] == [0, 2, 4, 6, 8]


@pytest.fixture
def log(open_log, disk, make_batch, append):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    return log


@pytest.fixture
def directory(path, disk, make_batch, append):
    directory = LogDirectory.open(str(path), files=disk, now_ms=lambda: T0)
    for topic in "ab":
        fill(directory.open_log(topic, 0, config=CONFIG), make_batch, append)
    yield directory
    directory.close(clean=False)


def names(directory: Path | str, *, suffix: str = "") -> set[int]:
    return {int(name[:20]) for name in os.listdir(directory) if name[0] == "0" and name.endswith(suffix)}


def offsets(log, read_batches):
    return [header.base_offset for header, _ in read_batches(log)]


def test_files_keep_their_names_until_they_are_set_aside_and_go_when_they_are_due(log, disk, read_batches):
    log.delete_before(4, later=True)
    assert (log.start_offset, log.segment_count) == (4, 3)
    assert disk.renamed[-1:] != [f"{0:020d}.log"]
    assert names(log.directory, suffix=".log") == {0, 2, 4, 6, 8}
    assert offsets(log, read_batches) == [4, 5, 6, 7, 8, 9]
    assert log.deletions.has_live
    log.deletions.set_aside_all(disk)
    assert not log.deletions.has_live
    assert names(log.directory, suffix=".log") == {4, 6, 8}
    assert names(log.directory, suffix=".log.deleted") == {0, 2}
    assert log.take_deleted(T0 + DELAY_MS - 1) == []
    log.remove_deleted(T0 + DELAY_MS)
    assert names(log.directory) == {4, 6, 8}
    assert not log.deletions


def test_a_deleted_segment_whose_name_is_still_there_is_as_it_was_whatever_comes_then(
    log, make_batch, append, read_batches
):
    path = Path(log.directory)
    log.flush()
    log.delete_before(4, later=True)
    before = {each: each.read_bytes() for each in path.glob("0*") if int(each.name[:20]) < 4}
    for number in range(10, 16):
        append(log, make_batch(1, size=1000, producer_id=1, sequence=number))
    log.truncate_to(12)
    log.flush()
    assert offsets(log, read_batches) == list(range(4, 12))
    assert {each: each.read_bytes() for each in before} == before


@pytest.mark.parametrize("first_later", [True, False])
@pytest.mark.parametrize("second_later", [True, False])
def test_a_kill_at_any_step_brings_back_the_end_of_what_was_deleted_and_leaves_no_gap(
    log, disk, open_log, tmp_path, read_batches, make_batch, append, first_later, second_later
):
    """A log with a gap would be cut off there, if it was not synced behind it: with all acknowledged records."""
    states: list[tuple[str, int]] = []

    def copy() -> None:
        states.append((f"killed-{len(states)}", log.start_offset))
        shutil.copytree(log.directory, tmp_path / states[-1][0])

    disk.before_change = copy
    log.delete_before(3, later=first_later)
    copy()
    log.delete_before(7, later=second_later)
    copy()
    log.remove_deleted(T0)
    log.remove_deleted(T0 + DELAY_MS)
    copy()
    disk.before_change = lambda: None
    assert len(states) > 12
    for state, _ in states:
        if first_later and second_later:
            logs, indexes = (names(tmp_path / state, suffix=each) for each in (".log", ".timeindex"))
            assert logs <= indexes, "which would have to be made anew, from end to end"
        killed = open_log(state, config=CONFIG, clean=False)
        assert killed.end_offset == 10
        assert killed.start_offset in (0, 2, 4, 6)
        assert offsets(killed, read_batches) == list(range(killed.start_offset, 10))
        assert killed.producer(1).next_sequence == 10
        assert [killed.epoch_at(each) for each in range(killed.start_offset, 10)] == [
            each // 3 for each in range(killed.start_offset, 10)
        ]
        assert append(killed, make_batch(1)).base_offset == 10
        killed.close(clean=False)
        assert not names(killed.directory, suffix=".deleted")
    assert open_log(states[-1][0], config=CONFIG, clean=False).start_offset == 6


@pytest.mark.parametrize("later", [True, False])
def test_a_power_cut_brings_back_nothing_that_was_never_synced(
    faulty_files, open_log, make_batch, append, read_batches, tmp_path_factory, tmp_path, later
):
    """It would be torn, and below the recovery point: a start would refuse the log, or cut off what was synced."""
    disk = faulty_files(tmp_path)
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    log.delete_before(7, later=later)
    log.flush()
    for seed in range(30):
        target = tmp_path_factory.mktemp("cut")
        disk.power_cut(Random(seed), target)
        for recovery_point in (10, 0):  # as the checkpoint says, which is written every minute
            left = open_log(str(target / "topic-0"), config=CONFIG, clean=False, recovery_point=recovery_point)
            assert (left.start_offset, left.end_offset) == (6, 10)
            assert offsets(left, read_batches) == [6, 7, 8, 9]
            left.close(clean=False)


@pytest.mark.parametrize("when", ["before", "during"])
def test_what_was_synced_before_it_was_deleted_costs_the_next_flush_nothing(log, disk, make_batch, append, when):
    flush = log.begin_flush()
    if when == "before":
        flush(), log.finish_flush(flush)
    log.delete_before(4, later=True)
    if when == "during":
        flush(), log.finish_flush(flush)
    else:
        append(log, make_batch(1))
        log.flush()
    assert log.deletions.has_live
    assert not any(each.endswith(".log") for each in disk.renamed)


def test_a_segment_that_was_never_synced_and_cannot_be_set_aside_fails_the_flush(log, disk):
    log.delete_before(4, later=True)
    disk.refuses = ".log"
    with pytest.raises(LogOffline, match="Input/output"):
        log.flush()
    assert log.recovery_point == 0


def test_a_file_that_cannot_be_set_aside_holds_up_those_behind_it_and_is_tried_again(log, disk):
    log.delete_before(6, later=True)
    disk.refuses = f"{2:020d}.log"
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            log.remove_deleted(T0)
        assert names(log.directory, suffix=".log") == {2, 4, 6, 8}
    disk.refuses = ""
    log.remove_deleted(T0)
    assert names(log.directory, suffix=".log") == {6, 8}
    log.remove_deleted(T0 + DELAY_MS)
    assert names(log.directory) == {6, 8}


def test_a_full_directory_takes_no_other_name_and_the_files_go_at_once(log, disk, monkeypatch):
    def refused(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", source, None, target)

    log.delete_before(6, later=True)
    monkeypatch.setattr(disk, "rename", refused)
    log.deletions.set_aside_all(disk)
    assert names(log.directory) == {6, 8}
    assert not log.deletions.take_due(1 << 60)


def test_one_logs_trouble_does_not_keep_the_others_files_from_their_turn(directory, disk):
    for log in directory.logs.values():
        log.delete_before(6, later=True)
    disk.refuses = "a-0"
    work = directory.take_deleted(T0)
    with pytest.raises(OSError, match="Input/output"):
        work()
    assert names(directory.logs["b", 0].directory, suffix=".log") == {6, 8}
    disk.refuses = ""
    directory.remove_deleted(T0)
    assert names(directory.logs["a", 0].directory, suffix=".log") == {6, 8}
    assert directory.take_deleted(T0) is None


def test_names_are_changed_by_one_thread_at_a_time(directory, disk):
    """They share these threads with the syncs that producers wait for."""
    log = directory.logs["a", 0]
    log.delete_before(4, later=True)
    first = directory.take_deleted(T0)
    assert first is not None
    assert directory.take_deleted(T0 + 1000) is None
    log.delete_before(6, later=True)
    first()
    assert names(log.directory, suffix=".log") == {6, 8}
    log.delete_before(8, later=True)
    disk.refuses = ".log"
    for _ in range(2):
        work = directory.take_deleted(T0 + 2000)
        assert work is not None, "and again after it has failed"
        with pytest.raises(OSError, match="Input/output"):
            work()


def test_a_close_removes_what_was_set_aside_and_what_was_not(log, disk, open_log, read_batches):
    log.delete_before(2, later=True)
    log.deletions.set_aside_all(disk)
    log.delete_before(4, later=False)
    log.delete_before(6, later=True)
    log.close()
    assert names(log.directory, suffix=".deleted") == set()
    assert names(log.directory, suffix=".log") == {6, 8}
    again = open_log(files=disk, config=CONFIG)
    assert offsets(again, read_batches) == [6, 7, 8, 9]


def test_what_is_due_at_once_is_not_forgotten_by_a_close(disk, tmp_path):
    """Whatever the clock says."""
    deletions = PendingDeletions()
    for name in "abc":
        (tmp_path / name).touch()
    deletions.add_live([str(tmp_path / "a")], due_ms=0)
    deletions.set_aside_all(disk)
    deletions.add_live([str(tmp_path / "b")], due_ms=-5)
    assert deletions.take_all() == [str(tmp_path / "a.deleted"), str(tmp_path / "b")]
    assert not deletions


def test_a_close_that_cannot_remove_a_file_lets_go_of_the_others(log, disk, monkeypatch, read_batches):
    def refused(path):
        raise OSError(errno.EIO, "Input/output error")

    offsets(log, read_batches)  # opens them all
    log.delete_before(6, later=True)
    monkeypatch.setattr(disk, "remove", refused)
    with pytest.raises(OSError, match="Input/output"):
        log.close()
    assert log.is_offline
    assert all(segment.file is None for segment in log.segments)


def test_a_stop_that_cannot_remove_a_deleted_segment_is_not_clean(directory, disk, monkeypatch, path):
    log = directory.logs["a", 0]
    log.delete_before(6, later=True)
    remove = disk.remove

    def refused(path):
        if f"{2:020d}.log" in path:
            raise OSError(errno.EIO, "Input/output error")
        remove(path)

    monkeypatch.setattr(disk, "remove", refused)
    directory.close(broker_epoch=7)
    monkeypatch.undo()
    again = LogDirectory.open(str(path), now_ms=lambda: T0)
    assert not again.was_clean
    assert (again.open_log("a", 0, config=CONFIG).start_offset, again.logs["a", 0].end_offset) == (6, 10)
    again.close()


def test_a_deleted_log_touches_nothing_of_the_next_of_its_name(directory, disk, make_batch, append, read_batches):
    old = directory.logs["a", 0]
    old.delete_before(6, later=True)
    work = directory.take_deleted(T0)
    directory.delete("a", 0)
    new = directory.open_log("a", 0, config=CONFIG)
    fill(new, make_batch, append)
    there = sorted(os.listdir(new.directory))
    work()
    old.deletions.set_aside_all(disk)
    assert old.deletions.take_all() == []
    assert sorted(os.listdir(new.directory)) == there
    assert offsets(new, read_batches) == list(range(10))


@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_log_that_begins_again_where_a_deleted_segment_did_keeps_its_new_files(
    log, disk, open_log, make_batch, read_batches, offset
):
    log.delete_before(6, later=True)
    log.truncate_fully_and_start_at(offset)
    for number in range(5):
        log.append_replicated(make_batch(1, size=1000, base_offset=offset + number, leader_epoch=0))
    log.remove_deleted(T0 + 2 * DELAY_MS)
    assert names(log.directory, suffix=".log") == {each.base_offset for each in log.segments}
    expected = list(range(offset, offset + 5))
    assert offsets(log, read_batches) == expected
    log.close()
    assert offsets(open_log(files=disk, config=CONFIG), read_batches) == expected


def test_a_log_that_moves_takes_its_deleted_files_with_it(open_log, log, disk, tmp_path):
    (tmp_path / "other").mkdir()
    future_path = tmp_path / "other" / moving.future_name(topic="topic", partition=0)
    moving.begin(disk, str(future_path))
    for segment in list(log.segments)[:-1]:
        copy = moving.SegmentCopy(disk, segment, directory=str(future_path))
        while copy.step():
            pass
    future = moving.open_future(log, str(future_path), active_base=8, start_offset=0, config=CONFIG)
    log.delete_before(4, later=True)  # after it was copied
    moving.catch_up(log, future)
    moving.relocate(log, future, path=str(tmp_path / "other" / "topic-0"))
    log.remove_deleted(T0 + DELAY_MS)
    assert names(log.directory) == {4, 6, 8}


def test_a_name_that_is_being_changed_is_waited_for_by_who_ends_it(log, disk):
    """The next log of this name must not lose a file to it."""
    begun, released = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert released.wait(30)

    log.delete_before(4, later=True)
    disk.before_change = hold
    with ThreadPoolExecutor(2) as threads:
        renaming = threads.submit(log.deletions.set_aside_all, disk)
        assert begun.wait(30)
        ending = threads.submit(log.deletions.end)
        assert not ending.done()
        disk.before_change = lambda: None
        released.set()
        renaming.result(30), ending.result(30)
    there = names(log.directory, suffix=".log")
    log.deletions.set_aside_all(disk)
    assert names(log.directory, suffix=".log") == there


@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_in_whatever_order_a_kill_leaves_no_gap_and_a_close_no_file(
    open_log, disk, tmp_path, make_batch, append, read_batches, seed
):
    random = Random(seed)
    log = open_log(files=disk, config=LogConfig(segment_bytes=2200, retention_bytes=9000, file_delete_delay_ms=1000))
    now = T0
    with ThreadPoolExecutor(1) as thread:
        for turn in range(60):
            now += random.randint(0, 800)
            for _ in range(random.randint(0, 3)):
                append(log, make_batch(1, size=1000))
            action = random.random()
            later = random.random() < 0.7
            if action < 0.3:
                log.delete_before(random.randint(log.start_offset, log.end_offset), later=later)
            elif action < 0.6:
                log.apply_retention(now, later=later)
            elif action < 0.65:
                log.truncate_fully_and_start_at(random.randint(0, log.end_offset))
            elif action < 0.7:
                log.truncate_to(random.randint(log.start_offset, log.end_offset))
            renaming = thread.submit(log.deletions.set_aside_all, disk) if random.random() < 0.4 else None
            if random.random() < 0.3:
                disk.refuses = f"{random.randint(0, log.end_offset):020d}.log" if not renaming else ""
            for path in log.take_deleted(now):
                disk.remove(path)
            if renaming is not None:
                assert renaming.exception(30) is None or disk.refuses
            disk.refuses = ""
            if turn % 5 == 0:
                shutil.copytree(log.directory, tmp_path / f"killed-{turn}")
                killed = open_log(f"killed-{turn}", config=CONFIG, clean=False)
                assert killed.end_offset == log.end_offset
                assert killed.start_offset <= log.segments.first_offset
                assert offsets(killed, read_batches) == list(range(killed.start_offset, killed.end_offset))
    log.close()
    bases = {each.base_offset for each in log.segments}
    assert names(log.directory, suffix=".log") == bases
    assert names(log.directory, suffix=".deleted") == set()
