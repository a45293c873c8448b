"""A disk that fills up, breaks or forgets: the log stays as it was, or says that it is offline."""

from __future__ import annotations

import errno
import os
from random import Random

import pytest

from tidemark.storage import Log, LogConfig, LogOffline, TooManyOpenFiles, WriteFailed

T0 = 1_700_000_000_000


@pytest.fixture
def disk(faulty_files, tmp_path):
    return faulty_files(tmp_path)


@pytest.fixture
def log(open_log, disk):
    return open_log(files=disk, config=LogConfig(segment_bytes=4000, index_interval_bytes=200))


@pytest.mark.parametrize("room", [0, 1, 60, 100])
def test_a_full_disk_leaves_the_log_as_it_was(log, disk, make_batch, append, read_batches, open_log, room):
    before = make_batch(2, producer_id=1, sequence=0)
    append(log, before)
    disk.room = room
    for _ in range(3):
        with pytest.raises(WriteFailed):
            append(log, make_batch(2, producer_id=1, sequence=2))
    assert log.end_offset == 2
    assert log.producers()[0].next_sequence == 2
    assert [data for _, data in read_batches(log)] == [bytes(before)]
    disk.room = None
    after = make_batch(2, producer_id=1, sequence=2)
    assert append(log, after).base_offset == 2
    log.close()
    log = open_log(files=disk)
    assert [data for _, data in read_batches(log)] == [bytes(before), bytes(after)]


def test_a_short_write_is_completed(log, disk, make_batch, append, read_batches, monkeypatch):
    import os

    monkeypatch.setattr(type(disk), "write", lambda self, fd, data: os.write(fd, memoryview(data)[:13]))
    batch = make_batch(3)
    append(log, batch)
    assert [data for _, data in read_batches(log)] == [bytes(batch)]


def test_a_failed_write_that_cannot_be_undone_takes_the_log_offline(log, disk, make_batch, append):
    append(log, make_batch(1))
    disk.room, disk.fail_truncate = 30, True
    with pytest.raises(LogOffline):
        append(log, make_batch(1))
    disk.room, disk.fail_truncate = None, False
    for call in (lambda: append(log, make_batch(1)), lambda: log.read(offset=0, limit_bytes=9), log.flush, log.roll):
        with pytest.raises(LogOffline):
            call()


def test_after_that_the_torn_bytes_are_cut_off_at_the_next_start(log, disk, make_batch, append, open_log):
    append(log, make_batch(1))
    disk.room, disk.fail_truncate = 70, True
    with pytest.raises(LogOffline):
        append(log, make_batch(1))
    disk.room, disk.fail_truncate = None, False
    log.close(clean=False)
    assert open_log(files=disk, clean=False).end_offset == 1


def test_a_disk_that_fills_up_at_a_roll_leaves_the_log_as_it_was(log, disk, make_batch, append, read_batches):
    append(log, make_batch(1, size=3500))
    disk.room = 5
    with pytest.raises(WriteFailed):
        append(log, make_batch(1, size=3500))
    assert (log.end_offset, log.segment_count) == (1, 1)
    disk.room = None
    append(log, make_batch(1, size=3500))
    assert (log.end_offset, log.segment_count) == (2, 2)
    assert len(list(read_batches(log))) == 2


def test_a_disk_full_of_replicated_batches_leaves_the_log_at_a_batch(log, disk, make_batch, read_batches, open_log):
    data = b"".join(make_batch(1, size=700, base_offset=number, leader_epoch=0) for number in range(12))
    disk.room = 6000
    with pytest.raises(WriteFailed):
        log.append_replicated(data)
    held = [header.base_offset for header, _ in read_batches(log)]
    assert held == list(range(log.end_offset))
    disk.room = None
    log.close(clean=False)
    assert open_log(files=disk, clean=False).end_offset == len(held)


def test_index_entries_that_found_no_room_are_written_later(open_log, disk, make_batch, append, read_batches):
    config = LogConfig(index_interval_bytes=0)
    log = open_log(files=disk, config=config)
    disk.room = 1100 * 99 + 50
    for _ in range(1100):
        append(log, make_batch(1, size=20))
    disk.room = None
    for _ in range(1100):
        append(log, make_batch(1, size=20))
    log.close()
    log = open_log(files=disk, config=config)
    assert len(list(read_batches(log))) == 2200
    assert next(iter(read_batches(log, offset=1500)))[0].base_offset == 1500


def test_a_failed_sync_takes_the_log_offline(log, disk, make_batch, append):
    append(log, make_batch(1))
    disk.fail_sync = True
    with pytest.raises(LogOffline):
        log.flush()
    disk.fail_sync = False
    with pytest.raises(LogOffline):
        append(log, make_batch(1))
    assert log.recovery_point == 0


def test_a_flush_on_another_thread_reports_its_failure_when_finished(log, disk, make_batch, append):
    append(log, make_batch(1))
    flush = log.begin_flush()
    disk.fail_sync = True
    with pytest.raises(OSError, match="sync failed"):
        flush()
    with pytest.raises(LogOffline):
        log.finish_flush(flush)
    assert log.is_offline


def test_a_disk_that_forgets_its_syncs_loses_records_in_the_model(log, disk, make_batch, append, tmp_path_factory):
    """Not a virtue of the log: it shows that the tests' power cuts would notice a missing sync."""
    disk.lose_syncs = True
    for _ in range(20):
        append(log, make_batch(1, size=100))
    log.flush()
    lost = 0
    for seed in range(20):
        target = tmp_path_factory.mktemp("cut")
        disk.power_cut(Random(seed), target)
        again = Log.open(str(target / "topic-0"), config=LogConfig(), clean=False, now_ms=lambda: T0)
        lost += again.end_offset < 20
        again.close(clean=False)
    assert lost > 0


def test_a_log_opens_on_a_full_disk_after_an_unclean_stop(log, disk, make_batch, append, open_log, read_batches):
    for _ in range(60):
        append(log, make_batch(1, size=200))
    log.close(clean=False)
    disk.room = 0
    log = open_log(files=disk, clean=False)
    assert len(list(read_batches(log))) == 60
    assert next(iter(read_batches(log, offset=33)))[0].base_offset == 33


def test_retention_frees_a_full_disk(open_log, disk, make_batch, append):
    log = open_log(files=disk, config=LogConfig(segment_bytes=2000, retention_ms=1, file_delete_delay_ms=0))
    for _ in range(6):
        append(log, make_batch(1, size=900))
    disk.room = 0
    assert log.apply_retention(T0 + 100_000)
    assert (log.start_offset, log.segment_count) == (4, 1)


def test_retention_frees_a_disk_so_full_that_a_directory_takes_no_other_name(
    open_log, disk, make_batch, append, tmp_path, monkeypatch
):
    """Renaming takes room, unlinking does not."""
    log = open_log(files=disk, config=LogConfig(segment_bytes=2000, retention_ms=1, file_delete_delay_ms=60_000))
    for _ in range(6):
        append(log, make_batch(1, size=900))
    disk.room = 0

    def refused(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", source, None, target)

    monkeypatch.setattr(disk, "rename", refused)
    assert log.apply_retention(T0 + 100_000)
    assert (log.start_offset, log.segment_count) == (4, 1)
    assert {name[:20] for name in os.listdir(tmp_path / "topic-0") if name[0] == "0"} == {"00000000000000000004"}


@pytest.mark.parametrize("refused", [".log", ".timeindex", ".snapshot"])
def test_a_segment_that_cannot_be_deleted_stays_in_the_log_until_it_can(
    open_log, disk, make_batch, append, monkeypatch, refused
):
    log = open_log(files=disk, config=LogConfig(segment_bytes=2000, retention_ms=1, file_delete_delay_ms=0))
    for _ in range(6):
        append(log, make_batch(1, size=900))
    rename = disk.rename

    def rename_but_one(source, target):
        if source.endswith("00000000000000000002" + refused):
            raise OSError(errno.EPERM, "Operation not permitted")
        rename(source, target)

    monkeypatch.setattr(disk, "rename", rename_but_one)
    with pytest.raises(WriteFailed, match=r"cannot delete segment 2: .*not permitted"):
        log.apply_retention(T0 + 100_000)
    assert log.start_offset == log.segments.first_offset == 2
    monkeypatch.setattr(disk, "rename", rename)
    assert log.apply_retention(T0 + 100_000)
    assert (log.start_offset, log.segment_count) == (6, 1)


def test_a_truncation_that_meets_damage_takes_the_log_offline(log, make_batch, append, tmp_path):
    for _ in range(10):
        append(log, make_batch(1, size=100))
    path = tmp_path / "topic-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    size = len(data) // 10
    for batch in range(8):
        data[batch * size + 8 : batch * size + 12] = bytes(4)  # lengths that cannot be
    path.write_bytes(data)
    with pytest.raises(LogOffline):
        log.truncate_to(8)
    assert log.is_offline
    with pytest.raises(LogOffline):
        log.read(offset=0, limit_bytes=1000)


def test_a_power_cut_during_a_truncation_leaves_no_gap(
    faulty_files, open_log, make_batch, append, read_batches, tmp_path_factory, tmp_path
):
    """Neither of the segments that go, nor of the one that is cut: a start would refuse the log."""

    class Watched(faulty_files):  # type: ignore[misc, valid-type]
        before_sync = staticmethod(lambda: None)

        def fdatasync(self, fd):
            self.before_sync()
            super().fdatasync(fd)
            self.before_sync()

        def sync_directory(self, path):
            self.before_sync()
            super().sync_directory(path)

    disk = Watched(tmp_path)
    log = open_log(files=disk, config=LogConfig(segment_bytes=2200))
    for number in range(10):
        append(log, make_batch(1, size=1000, timestamp=T0 + number))
    log.flush()
    before = [header.base_offset for header, _ in read_batches(log)]
    states = []

    def cut():
        for seed in range(10):
            states.append(tmp_path_factory.mktemp("cut"))
            disk.power_cut(Random(seed), states[-1])

    disk.before_sync = cut
    log.truncate_to(3)
    disk.before_sync = lambda: None
    cut()
    assert len(states) > 30
    for path in states:
        left = open_log(str(path / "topic-0"), config=log.config, clean=False, recovery_point=10)
        assert 3 <= left.end_offset <= 10
        assert [header.base_offset for header, _ in read_batches(left)] == before[: left.end_offset]
        left.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [b"", b"\0\0\0\0", b"0\n3\n1 0\n", None])
def test_epochs_that_a_power_cut_took_are_restored_from_the_batches(
    open_log, make_batch, append, tmp_path, clean, content
):
    log = open_log(config=LogConfig(segment_bytes=400))
    for epoch in (1, 1, 4, 4, 4, 7):
        append(log, make_batch(1, size=100), leader_epoch=epoch)
    log.close()
    path = tmp_path / "topic-0" / "leader-epoch-checkpoint"
    before = path.read_bytes()
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log = open_log(clean=clean, recovery_point=6)
    assert log.latest_epoch == 7
    assert log.epoch_end_offset(3) == (1, 2)
    assert log.epoch_end_offset(6) == (4, 5)
    assert path.read_bytes() == before


def test_too_few_descriptors_are_said_so_and_the_log_goes_on_when_there_are_some(log, disk, make_batch, append):
    append(log, make_batch(1, size=100))
    log.roll()
    append(log, make_batch(1, size=100))
    for segment in log.segments:
        segment.close_file()
    disk.fail_open = errno.EMFILE
    for call in (lambda: append(log, make_batch(1)), lambda: log.read(offset=0, limit_bytes=9), log.begin_flush):
        with pytest.raises(TooManyOpenFiles, match="ulimit -n"):
            call()
    disk.fail_open = 0
    assert not log.is_offline
    assert append(log, make_batch(1)).base_offset == 2
    assert log.read(offset=0, limit_bytes=9)
    log.flush()
    assert log.recovery_point == 3


def test_a_sync_that_began_before_a_truncation_says_nothing_about_what_was_written_since(log, make_batch, append):
    append(log, make_batch(1))
    log.flush()
    append(log, make_batch(4))
    flush = log.begin_flush()
    log.truncate_to(1)
    append(log, make_batch(4))
    flush()
    log.finish_flush(flush)
    assert (log.end_offset, log.recovery_point) == (5, 1)


def test_after_a_kill_only_what_was_synced_counts_as_synced(log, open_log, make_batch, append):
    append(log, make_batch(2))
    log.flush()
    append(log, make_batch(2))
    log.close(clean=False)
    log = open_log(clean=False, recovery_point=2)
    assert (log.end_offset, log.recovery_point) == (4, 2)
