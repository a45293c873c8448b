"""A roll that a thread makes: whatever fails, and whenever the node is killed, the log goes on in one segment or the
other, with every record once."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tidemark.protocol.records import iter_records, read_header
from tidemark.storage import Log, LogConfig, LogOffline, WriteFailed

T0 = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=200)
ERRORS = [errno.ENOSPC, errno.EIO, errno.EMFILE]
SMALL_BATCHES = 8


@pytest.fixture
def disk(faulty_files, tmp_path):
    """It tells before it changes anything, and fails when it is told to."""

    class Watched(faulty_files):  # type: ignore[misc, valid-type]
        before_change = staticmethod(lambda: None)

        def write(self, fd, data):
            self.before_change()
            return super().write(fd, data)

        def truncate(self, fd, size):
            self.before_change()
            super().truncate(fd, size)

        def open_descriptor(self, path, flags):
            if flags & os.O_CREAT and not self.exists(path):
                self.before_change()
            return super().open_descriptor(path, flags)

        def rename(self, source, target):
            self.before_change()
            super().rename(source, target)

        def fail_at(self, change, error, *, for_good=False):
            """Returns a list that is filled when it fails."""
            seen: list[None] = []
            failed: list[None] = []

            def count():
                seen.append(None)
                if len(seen) == change or (for_good and len(seen) > change):
                    failed.append(None)
                    raise OSError(error, os.strerror(error))

            self.before_change = count
            return failed

        def work(self):
            self.before_change = lambda: None

    return Watched(tmp_path)


def fill(log, make_batch, append):
    """Nearly a segment, with a producer whose state a snapshot must tell."""
    for number in range(SMALL_BATCHES):
        append(log, make_batch(2, size=150, producer_id=1, sequence=2 * number, timestamp=T0 + number))


def next_batch(make_batch):
    return make_batch(1, size=3500, producer_id=1, sequence=2 * SMALL_BATCHES, timestamp=T0 + 5)


def begin(log, batch):
    return log.begin_append(batch, read_header(batch), leader_epoch=0, now_ms=T0)


def append_by_thread(log, batch):
    pending = begin(log, batch)
    pending()
    return log.finish_append(pending)


def append_here(log, batch):
    return log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)


def contents(log, read_batches):
    return [(header.base_offset, [each.value for each in iter_records(data)]) for header, data in read_batches(log)]


def check(log, expected, read_batches, make_batch, append):
    """Every record is there once, in order, is found by its offset, and the log goes on."""
    assert contents(log, read_batches) == expected
    for base_offset, _ in expected:
        assert next(iter(read_batches(log, offset=base_offset)))[0].base_offset == base_offset
    assert append(log, make_batch(1)).base_offset == log.end_offset - 1 == expected[-1][0] + len(expected[-1][1])


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("write", [append_by_thread, append_here])
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
def test_whichever_step_fails_the_log_is_as_before_and_the_next_append_goes_well(
    open_log, disk, make_batch, append, read_batches, tmp_path, write, error, for_good
):
    for change in range(1, 40):
        name = f"topic-{change}"
        log = open_log(name, files=disk, config=CONFIG)
        fill(log, make_batch, append)
        before = contents(log, read_batches)
        batch = next_batch(make_batch)
        failed = disk.fail_at(change, error, for_good=for_good)
        try:
            write(log, bytearray(batch))
        except (WriteFailed, LogOffline):
            assert failed
        disk.work()
        if not failed:
            break
        if not log.is_offline:
            assert contents(log, read_batches) == before
            assert log.producer(1).next_sequence == 2 * SMALL_BATCHES
            shutil.copytree(tmp_path / name, tmp_path / f"killed-{change}")
            killed = open_log(f"killed-{change}", config=CONFIG, clean=False)
            check(killed, before, read_batches, make_batch, append)
            append(log, make_batch(1, size=10))  # which the old segment may have room for
            write(log, bytearray(batch))
            before = contents(log, read_batches)
            assert len(before) == SMALL_BATCHES + 2
            log.close()
            check(open_log(name, files=disk, config=CONFIG), before, read_batches, make_batch, append)
        else:
            log.close(clean=False)
            check(open_log(name, files=disk, config=CONFIG, clean=False), before, read_batches, make_batch, append)
    else:
        pytest.fail("it failed every time")
    assert change > 5, "saving two indexes, a snapshot, three files, and a write"


@pytest.mark.parametrize("write", [append_by_thread, append_here])
def test_a_new_segment_that_cannot_be_looked_at_is_not_taken_for_the_logs_end(
    open_log, disk, make_batch, append, read_batches, monkeypatch, write
):
    """Else a start would find the log ending where that segment begins, and give its offsets to others."""
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    open_data = disk.open_data

    def open_and_break(path, *, create=False):
        file = open_data(path, create=create)
        if create:
            monkeypatch.setattr(disk, "open_size", breaks)
        return file

    def breaks(fd):
        monkeypatch.undo()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "open_data", open_and_break)
    with pytest.raises(WriteFailed):
        write(log, next_batch(make_batch))
    append(log, make_batch(1, size=10))
    before = contents(log, read_batches)
    assert len(before) == SMALL_BATCHES + 1
    log.close()
    check(open_log(files=disk, config=CONFIG), before, read_batches, make_batch, append)


@pytest.mark.parametrize("write", [append_by_thread, append_here])
def test_a_power_cut_does_not_bring_back_a_new_segment_that_could_not_be_used(
    open_log, disk, make_batch, append, read_batches, monkeypatch, tmp_path_factory, write
):
    """Its name may reach the disk before it is removed; what the log went on with was synced and acknowledged."""
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    log.flush()
    open_data = disk.open_data

    def open_and_break(path, *, create=False):
        file = open_data(path, create=create)
        monkeypatch.setattr(disk, "open_size", breaks)
        return file

    def breaks(fd):
        monkeypatch.undo()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "open_data", open_and_break)
    with pytest.raises(WriteFailed):
        write(log, next_batch(make_batch))
    append(log, make_batch(1, size=10))
    log.flush()
    for seed in range(20):
        target = tmp_path_factory.mktemp("cut")
        disk.power_cut(Random(seed), target)
        for recovery_point in (log.recovery_point, 0):
            left = open_log(str(target / "topic-0"), config=CONFIG, clean=False, recovery_point=recovery_point)
            assert contents(left, read_batches) == contents(log, read_batches)
            left.close(clean=False)


@pytest.mark.parametrize("write", [append_by_thread, append_here])
def test_one_that_cannot_be_removed_either_takes_the_log_offline(
    open_log, disk, make_batch, append, read_batches, monkeypatch, write
):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    before = contents(log, read_batches)

    def breaks(*_):
        raise OSError(errno.EIO, "Input/output error")

    open_data = disk.open_data

    def open_and_break(path, *, create=False):
        file = open_data(path, create=create)
        monkeypatch.setattr(disk, "open_size", breaks)
        return file

    monkeypatch.setattr(disk, "open_data", open_and_break)
    monkeypatch.setattr(disk, "remove", breaks)
    with pytest.raises(LogOffline, match="nor removed"):
        write(log, next_batch(make_batch))
    assert log.is_offline
    monkeypatch.undo()
    log.close(clean=False)
    check(open_log(files=disk, config=CONFIG, clean=False), before, read_batches, make_batch, append)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_kill_at_any_step_leaves_the_batch_or_not(
    open_log, disk, make_batch, append, read_batches, tmp_path, is_flushed
):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    if is_flushed:
        log.flush()
    before = contents(log, read_batches)
    states: list[str] = []

    def copy():
        states.append(f"killed-{len(states)}")
        shutil.copytree(tmp_path / "topic-0", tmp_path / states[-1])

    disk.before_change = copy
    append_by_thread(log, next_batch(make_batch))
    copy()
    disk.work()
    after = contents(log, read_batches)
    assert len(states) > 6
    for state in states:
        killed = open_log(state, config=CONFIG, clean=False, recovery_point=log.recovery_point)
        check(killed, after if state == states[-1] else before, read_batches, make_batch, append)
        assert killed.producer(1).next_sequence == 2 * SMALL_BATCHES + (state == states[-1])
        killed.close()
        again = open_log(state, config=CONFIG)
        assert again.end_offset == killed.end_offset
        assert [each.base_offset for each in again.segments] == [each.base_offset for each in killed.segments]


@pytest.mark.parametrize("seed", range(5))
def test_a_power_cut_at_any_step_takes_nothing_that_was_synced(
    disk, make_batch, append, read_batches, tmp_path_factory, tmp_path, seed
):
    random = Random(seed)
    states: list[tuple[Path, int]] = []
    log = Log.open(str(tmp_path / "topic-0"), config=CONFIG, files=disk, clean=True, now_ms=lambda: T0)
    fill(log, make_batch, append)
    log.flush()

    def cut():
        states.append((tmp_path_factory.mktemp("cut"), log.recovery_point))
        disk.power_cut(random, states[-1][0])

    disk.before_change = cut
    for number in range(6):
        append_by_thread(log, make_batch(1, size=1500))
        if number % 2:  # as with flush.messages=1
            log.flush()
            cut()
    disk.work()
    everything = contents(log, read_batches)
    assert len(states) > 20
    for path, recovery_point in states:
        left = Log.open(
            str(path / "topic-0"), config=CONFIG, clean=False, recovery_point=recovery_point, now_ms=lambda: T0
        )
        assert left.end_offset >= recovery_point
        found = contents(left, read_batches)
        assert found == everything[: len(found)]
        assert append(left, make_batch(1)).base_offset == left.end_offset - 1
        left.close(clean=False)


def test_a_flush_that_began_before_the_roll_ended_does_not_count_for_the_new_segment(
    open_log, disk, make_batch, append, read_batches, tmp_path_factory
):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    pending = begin(log, next_batch(make_batch))
    pending()  # its files are there, and the log does not know of them yet
    flush = log.begin_flush()
    log.finish_append(pending)
    flush()
    log.finish_flush(flush)
    assert log.recovery_point == 2 * SMALL_BATCHES
    log.flush()
    assert log.recovery_point == log.end_offset == 2 * SMALL_BATCHES + 1
    for seed in range(10):
        target = tmp_path_factory.mktemp("cut")
        disk.power_cut(Random(seed), target)
        left = Log.open(str(target / "topic-0"), config=CONFIG, clean=False, recovery_point=log.recovery_point)
        assert contents(left, read_batches) == contents(log, read_batches)
        left.close(clean=False)


@pytest.mark.parametrize("held", ["index", "snapshot", "log"])
def test_whoever_needs_the_end_of_the_log_waits_for_the_roll(
    open_log, disk, make_batch, append, read_batches, monkeypatch, held
):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    begun, released = threading.Event(), threading.Event()
    open_descriptor = type(disk).open_descriptor

    def hold(path, flags):
        if f".{held}" in path and not begun.is_set():
            begun.set()
            assert released.wait(30)
        return open_descriptor(disk, path, flags)

    monkeypatch.setattr(disk, "open_descriptor", hold)
    pending = begin(log, next_batch(make_batch))
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(pending)
        assert begun.wait(30)
        assert (log.end_offset, log.segment_count) == (2 * SMALL_BATCHES, 1)
        cutting = threads.submit(log.truncate_to, 3)
        assert not cutting.done()
        released.set()
        writing.result(30), cutting.result(30)
    assert (log.end_offset, log.segment_count) == (2, 1)
    expected = contents(log, read_batches)
    log.close()
    check(open_log(files=disk, config=CONFIG), expected, read_batches, make_batch, append)


@pytest.mark.parametrize("is_made", [True, False])
def test_a_clean_close_takes_the_roll_with_it(open_log, disk, make_batch, append, read_batches, is_made):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    pending = begin(log, next_batch(make_batch))
    if is_made:
        pending()
    log.close()
    log = open_log(files=disk, config=CONFIG)
    assert [each.base_offset for each in log.segments] == [0, 2 * SMALL_BATCHES]
    assert len(contents(log, read_batches)) == SMALL_BATCHES + 1


def test_a_roll_of_a_deleted_log_makes_no_file_in_the_next_of_its_name(open_log, disk, make_batch, append, tmp_path):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    pending = begin(log, next_batch(make_batch))
    log.retire()
    other = open_log(files=disk, config=CONFIG)
    append(other, make_batch(1))
    there = sorted(os.listdir(tmp_path / "topic-0"))
    pending()
    with pytest.raises(LogOffline):
        log.finish_append(pending)
    assert sorted(os.listdir(tmp_path / "topic-0")) == there
    assert other.end_offset == 1


def test_a_roll_whose_batch_finds_no_room_goes_on_in_the_new_segment(open_log, disk, make_batch, append, read_batches):
    log = open_log(files=disk, config=CONFIG)
    fill(log, make_batch, append)
    before = contents(log, read_batches)
    pending = begin(log, batch := next_batch(make_batch))
    pending.roll.steps.append(lambda: setattr(disk, "room", 100))
    pending()
    with pytest.raises(WriteFailed):
        log.finish_append(pending)
    disk.room = None
    assert (log.end_offset, [each.size > 0 for each in log.segments]) == (2 * SMALL_BATCHES, [True, False])
    assert contents(log, read_batches) == before
    assert append_by_thread(log, batch).base_offset == 2 * SMALL_BATCHES
    assert log.segment_count == 2


def test_rolls_keep_no_file_open_that_nobody_reads(open_log, disk, make_batch, append, tmp_path):
    def open_files():
        return sum(1 for fd in os.listdir("/proc/self/fd") if _target(fd).startswith(str(tmp_path)))

    log = open_log(files=disk, config=CONFIG)
    for _ in range(12):
        append_by_thread(log, make_batch(1, size=3500))
    assert log.segment_count == 12
    assert open_files() <= 9, "the cache's limit, and the active one"
    log.delete()
    assert open_files() == 0


def _target(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""
