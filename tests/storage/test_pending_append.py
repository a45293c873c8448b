"""An append whose write is left to another thread: nobody sees it too early, and nothing gets in between."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from tidemark.protocol.records import read_header
from tidemark.storage import Appended, Files, LogConfig, LogOffline, PendingAppend, WriteFailed

T0 = 1_700_000_000_000


@pytest.fixture
def disk(faulty_files, tmp_path):
    return faulty_files(tmp_path)


@pytest.fixture
def log(open_log, disk):
    return open_log(files=disk, config=LogConfig(segment_bytes=4000, index_interval_bytes=200))


def begin(log, batch, *, leader_epoch=0, now_ms=T0):
    return log.begin_append(batch, read_header(batch), leader_epoch=leader_epoch, now_ms=now_ms)


def test_nobody_sees_a_batch_before_it_is_finished(log, make_batch, append, read_batches):
    append(log, make_batch(2))
    pending = begin(log, batch := make_batch(3, producer_id=1, sequence=0))
    pending()
    assert (log.end_offset, log.producers(), log.read(offset=2, limit_bytes=9)) == (2, [], [])
    assert log.finish_append(pending) == Appended(2, 4)
    assert log.end_offset == 5
    assert log.producers()[0].next_sequence == 3
    assert [data for _, data in read_batches(log)][1] == bytes(batch)


def test_finishing_before_the_thread_has_begun_writes_here(log, make_batch, read_batches):
    pending = begin(log, batch := make_batch(2))
    assert log.finish_append(pending).last_offset == 1
    pending()  # the thread comes late, and finds nothing to do
    assert [data for _, data in read_batches(log)] == [bytes(batch)]


def test_a_repeated_batch_is_answered_at_once(log, make_batch, append):
    append(log, make_batch(2, producer_id=1, sequence=0))
    assert begin(log, make_batch(2, producer_id=1, sequence=0)) == Appended(0, 1, -1, True)
    assert not log.is_appending


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_full_disk_leaves_the_log_as_it_was(log, disk, make_batch, append, read_batches, open_log, room):
    append(log, before := make_batch(2, producer_id=1, sequence=0))
    disk.room = room
    pending = begin(log, make_batch(2, producer_id=1, sequence=2))
    pending()
    with pytest.raises(WriteFailed):
        log.finish_append(pending)
    assert (log.end_offset, log.producers()[0].next_sequence) == (2, 2)
    disk.room = None
    assert append(log, after := make_batch(2, producer_id=1, sequence=2)).base_offset == 2
    log.close()
    assert [data for _, data in read_batches(open_log(files=disk))] == [bytes(before), bytes(after)]


def test_a_failed_write_that_cannot_be_undone_takes_the_log_offline(log, disk, make_batch, append, open_log):
    append(log, make_batch(1))
    pending = begin(log, make_batch(1))
    disk.room, disk.fail_truncate = 70, True
    pending()
    assert not log.is_offline, "not yet: this is another thread"
    with pytest.raises(LogOffline):
        log.finish_append(pending)
    disk.room, disk.fail_truncate = None, False
    with pytest.raises(LogOffline):
        append(log, make_batch(1))
    log.close(clean=False)
    assert open_log(files=disk, clean=False).end_offset == 1


def test_a_batch_that_is_written_in_pieces_is_seen_when_all_of_it_is_there(log, make_batch, append, read_batches):
    append(log, make_batch(2))
    pending = begin(log, batch := make_batch(3))
    pieces = 1
    while not pending.write(bytes_max=50):
        pieces += 1
        assert (log.end_offset, log.read(offset=2, limit_bytes=9)) == (2, [])
    assert pieces == -(-len(batch) // 50)
    assert log.finish_append(pending) == Appended(2, 4)
    assert [data for _, data in read_batches(log)][1] == bytes(batch)
    assert pending.write(bytes_max=50), "nothing is written twice"
    assert [data for _, data in read_batches(log)][1:] == [bytes(batch)]


@pytest.mark.parametrize("room", [0, 49, 50, 51, 99, 100, 120])
def test_a_disk_that_fills_up_in_the_middle_of_the_pieces_leaves_the_log_as_it_was(
    log, disk, make_batch, append, read_batches, open_log, room
):
    append(log, before := make_batch(2))
    pending = begin(log, batch := make_batch(3))
    assert len(batch) > 120
    disk.room = room
    while not pending.write(bytes_max=50):
        pass
    with pytest.raises(WriteFailed):
        log.finish_append(pending)
    disk.room = None
    assert pending.write(bytes_max=50), "it is over"
    append(log, after := make_batch(1))
    log.close()
    assert [data for _, data in read_batches(open_log(files=disk))] == [bytes(before), bytes(after)]


@pytest.mark.parametrize("pieces", [1, 2])
def test_what_is_left_of_the_pieces_is_written_by_whoever_needs_the_end_of_the_log(
    log, make_batch, append, read_batches, pieces
):
    pending = begin(log, batch := make_batch(3))
    for _ in range(pieces):
        assert not pending.write(bytes_max=50)
    append(log, after := make_batch(1))
    assert log.finish_append(pending) == Appended(0, 2)
    assert [data for _, data in read_batches(log)] == [bytes(batch), bytes(after)]


@pytest.mark.parametrize("pieces", [0, 1, 2])
def test_a_kill_between_two_pieces_leaves_the_batches_before(
    log, disk, make_batch, append, read_batches, open_log, pieces
):
    append(log, before := make_batch(2))
    pending = begin(log, make_batch(3))
    for _ in range(pieces):
        assert not pending.write(bytes_max=50)
    found = open_log(files=disk, clean=False)
    assert found.end_offset == 2
    assert [data for _, data in read_batches(found)] == [bytes(before)]


@pytest.mark.parametrize("is_written", [True, False])
@pytest.mark.parametrize(
    ("act", "end_offset"),
    [
        (lambda log, make, append: append(log, make(1)), 6),
        (lambda log, make, _: log.append_replicated(make(1, base_offset=5, leader_epoch=0)), 6),
        (lambda log, make, _: log.start_epoch(7), 5),
        (lambda log, make, _: log.roll(), 5),
        (lambda log, make, _: log.truncate_to(2), 2),
        (lambda log, make, _: log.truncate_fully_and_start_at(9), 9),
    ],
    ids=["append", "replicated", "epoch", "roll", "truncation", "emptying"],
)
def test_whatever_needs_the_end_of_the_log_finishes_the_append_first(
    log, make_batch, append, act, end_offset, is_written
):
    append(log, make_batch(2))
    pending = begin(log, make_batch(3))
    if is_written:
        pending()
    act(log, make_batch, append)
    assert not log.is_appending
    assert log.end_offset == end_offset
    assert log.finish_append(pending) == Appended(2, 4), "it was in the log, whatever came then"
    if log.latest_epoch == 7:
        assert log.epoch_end_offset(0) == (0, 5), "the new epoch begins after it"


def test_a_clean_close_keeps_what_is_being_written(log, disk, make_batch, append, open_log):
    append(log, make_batch(2))
    begin(log, make_batch(3))
    log.close()
    assert open_log(files=disk, clean=True).end_offset == 5


def test_a_write_that_breaks_the_log_just_before_the_stop_denies_the_clean_mark(
    open_directory, disk, make_batch, append
):
    """The stop is the first to hear of it, and has synced nothing of the log."""
    directory = open_directory(disk)
    log = directory.open_log("t", 0, config=LogConfig())
    append(log, make_batch(1))
    pending = begin(log, make_batch(1))
    disk.room, disk.fail_truncate = 70, True
    pending()
    disk.room, disk.fail_truncate = None, False
    directory.close(broker_epoch=7)  # before finish_append is called
    again = open_directory(disk)
    assert not again.was_clean
    assert again.open_log("t", 0, config=LogConfig()).end_offset == 1


def test_a_log_that_is_deleted_meanwhile_takes_nothing(log, make_batch, append):
    append(log, make_batch(2))
    pending = begin(log, make_batch(3))
    log.delete()
    pending()
    with pytest.raises(LogOffline):
        log.finish_append(pending)


def test_a_write_that_fails_in_an_unheard_of_way_takes_the_log_offline(log, disk, make_batch, append, monkeypatch):
    append(log, make_batch(1))
    pending = begin(log, make_batch(1))

    def write(fd, data):
        raise MemoryError

    monkeypatch.setattr(disk, "write_all", write)
    pending()  # on a thread, where nobody would catch it
    with pytest.raises(LogOffline, match="MemoryError"):
        log.finish_append(pending)
    assert log.is_offline
    assert log.end_offset == 1


def test_a_log_that_goes_offline_meanwhile_acknowledges_nothing(log, make_batch):
    pending = begin(log, make_batch(3))
    log.fail("its sync failed")
    pending()
    with pytest.raises(LogOffline):
        log.finish_append(pending)


def test_retention_leaves_the_segment_that_is_written_to(open_log, disk, make_batch, append):
    log = open_log(files=disk, config=LogConfig(retention_ms=1000))
    append(log, make_batch(2))
    pending = begin(log, make_batch(3, timestamp=T0 + 60_000))
    log.apply_retention(T0 + 60_000)
    pending()
    assert log.finish_append(pending) == Appended(2, 4)
    assert (log.start_offset, log.segment_count) == (0, 1)


def test_a_flush_meanwhile_speaks_of_what_was_there_before(log, make_batch, append):
    append(log, make_batch(2))
    pending = begin(log, make_batch(3))
    log.flush()
    assert log.recovery_point == 2
    log.finish_append(pending)
    log.flush()
    assert log.recovery_point == 5


class HeldFiles(Files):
    """A disk that does not finish a write before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.released = threading.Event(), threading.Event()
        self.holds = False

    def write_all(self, fd, data) -> None:
        if self.holds:
            self.begun.set()
            assert self.released.wait(30)
        super().write_all(fd, data)


def test_settling_waits_for_the_thread_that_writes(open_log, make_batch, append):
    log = open_log(files=(disk := HeldFiles()))
    append(log, make_batch(2))
    disk.holds = True
    pending = begin(log, make_batch(3))
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(pending)
        assert disk.begun.wait(30)
        settling = threads.submit(log.settle)
        assert not settling.done()
        disk.released.set()
        writing.result(30), settling.result(30)
    assert append(log, make_batch(1)).base_offset == 5


@pytest.mark.parametrize("seed", range(20))
def test_a_log_is_the_same_whichever_thread_wrote(open_log, make_batch, tmp_path, seed):
    random = Random(seed)
    config = LogConfig(segment_bytes=3000, index_interval_bytes=200)
    logs = [open_log(tmp_path / name, config=config) for name in ("at-once", "later")]
    with ThreadPoolExecutor(1) as thread:
        for _ in range(120):
            batch = make_batch(random.randint(1, 4), size=random.randint(1, 400))
            chance = random.random()
            appended = logs[0].append(bytearray(batch), read_header(batch), leader_epoch=0, now_ms=T0)
            pending = begin(logs[1], batch)
            assert isinstance(pending, PendingAppend)
            written = thread.submit(pending)
            if chance < 0.1:
                cut = random.randint(0, appended.last_offset + 1)
                assert [log.truncate_to(cut) for log in logs] == [cut <= appended.last_offset] * 2
            elif chance < 0.2:
                for log in logs:
                    log.roll()
            elif chance < 0.5:
                written.result(30)
            assert logs[1].finish_append(pending) == appended
            assert logs[0].end_offset == logs[1].end_offset
    for log in logs:
        log.close()
    first, second = ({path.name: path.read_bytes() for path in Path(log.directory).glob("*.*")} for log in logs)
    assert first == second
