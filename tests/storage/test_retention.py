from __future__ import annotations

import errno
import os

import pytest

from tidemark.storage import LogConfig, OffsetOutOfRange, WriteFailed
from tidemark.storage.segment import Segment

T0 = 1_700_000_000_000
HOUR = 3_600_000


@pytest.fixture
def filled(open_log, make_batch, append):
    """A log of ten batches, one an hour, two to a segment."""

    def fill(**settings):
        log = open_log(config=LogConfig(segment_bytes=2200, file_delete_delay_ms=60_000, **settings))
        for number in range(10):
            append(log, make_batch(1, size=1000, timestamp=T0 + number * HOUR))
        assert log.segment_count == 5
        return log

    return fill


def test_old_segments_go_whole(filled):
    log = filled(retention_ms=5 * HOUR)
    assert log.apply_retention(T0 + 9 * HOUR) is True
    # Batches 0..3 are older than five hours; the segment of 4 and 5 is as young as 5.
    assert (log.start_offset, log.segment_count) == (4, 3)
    assert log.apply_retention(T0 + 9 * HOUR) is False


def test_an_expired_active_segment_is_rolled_and_goes(filled, make_batch, append):
    log = filled(retention_ms=5 * HOUR)
    log.apply_retention(T0 + 100 * HOUR)
    assert (log.start_offset, log.end_offset, log.segment_count, log.size_bytes) == (10, 10, 1, 0)
    assert log.apply_retention(T0 + 200 * HOUR) is False
    assert append(log, make_batch(1)).base_offset == 10


def test_a_segment_exactly_as_old_as_allowed_stays(filled):
    log = filled(retention_ms=5 * HOUR)
    assert log.apply_retention(T0 + 6 * HOUR) is False
    assert log.apply_retention(T0 + 6 * HOUR + 1) is True


def test_without_timestamps_the_files_age_counts(open_log, make_batch, append, tmp_path):
    log = open_log(config=LogConfig(segment_bytes=2200, retention_ms=HOUR))
    for _ in range(4):
        append(log, make_batch(1, size=1000, timestamp=-1))
    os.utime(tmp_path / "topic-0" / f"{0:020d}.log", (T0 / 1000, T0 / 1000))
    os.utime(tmp_path / "topic-0" / f"{2:020d}.log", (T0 / 1000, T0 / 1000 + 2 * 3600))
    log.apply_retention(T0 + 2 * HOUR)
    assert log.start_offset == 2


def test_size_is_kept_above_the_limit(filled):
    log = filled(retention_ms=-1, retention_bytes=5000)
    size = log.size_bytes // 5
    log.apply_retention(T0)
    assert log.size_bytes == 3 * size
    assert log.start_offset == 4


def test_no_limits_delete_nothing(filled):
    log = filled(retention_ms=-1, retention_bytes=-1)
    assert log.apply_retention(1 << 60) is False


def test_a_compacted_log_is_never_deleted_by_time_or_size(filled):
    log = filled(retention_ms=1, retention_bytes=1, compact=True, delete=False)
    assert log.apply_retention(1 << 60) is False
    log.delete_before(4)
    assert log.start_offset == 4


def test_uncommitted_records_stay(filled):
    log = filled(retention_ms=1)
    log.apply_retention(T0 + 100 * HOUR, high_watermark=5)
    assert log.start_offset == 4


def test_deleting_records_removes_whole_segments_only(filled):
    log = filled(retention_ms=-1)
    log.delete_before(5)
    assert (log.start_offset, log.segment_count) == (5, 3)
    log.delete_before(3)
    assert log.start_offset == 5
    with pytest.raises(OffsetOutOfRange):
        log.delete_before(11)


def test_deleting_all_records_keeps_the_active_segment(filled):
    log = filled(retention_ms=-1)
    log.delete_before(10)
    assert (log.start_offset, log.end_offset, log.segment_count) == (10, 10, 1)


def test_deleted_files_stay_for_a_while_under_another_name(filled, tmp_path):
    log = filled(retention_ms=-1)
    log.delete_before(2)
    path = tmp_path / "topic-0"
    assert (path / f"{0:020d}.log.deleted").exists()
    log.remove_deleted(T0 + 59_999)
    assert (path / f"{0:020d}.log.deleted").exists()
    log.remove_deleted(T0 + 60_000)
    assert not list(path.glob("*.deleted"))
    assert not list(path.glob(f"{0:020d}.*"))


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", ".log"])
def test_a_segment_that_cannot_be_deleted_can_be_read_and_its_files_go_when_it_can(
    filled, tmp_path, monkeypatch, suffix, read_batches
):
    log = filled(retention_ms=5 * HOUR)

    def fails(source, target):
        if source.endswith(f"{2:020d}{suffix}"):
            raise OSError(errno.EIO, "Input/output error")
        os.rename(source, target)

    monkeypatch.setattr(log.files, "rename", fails)
    with pytest.raises(WriteFailed):
        log.apply_retention(T0 + 9 * HOUR)
    for segment in log.segments:
        segment.release()  # as when others are read
    assert [header.base_offset for header, _ in read_batches(log)] == list(range(2, 10))
    monkeypatch.undo()
    assert log.apply_retention(T0 + 9 * HOUR)
    log.remove_deleted(T0 + 20 * HOUR)
    assert {int(path.name[:20]) for path in (tmp_path / "topic-0").glob("0*")} == {4, 6, 8}


def test_epochs_follow_the_start(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=1000))
    for number in range(6):
        append(log, make_batch(1, size=700), leader_epoch=number // 2)
    log.delete_before(3)
    assert log.epoch_end_offset(0) == (0, 3)
    assert log.epoch_end_offset(1) == (1, 4)


def test_producers_outlive_their_records(filled, make_batch, append, open_log):
    log = open_log("other-0", config=LogConfig(segment_bytes=1000, retention_ms=-1))
    append(log, make_batch(1, size=700, producer_id=4, sequence=0))
    append(log, make_batch(1, size=700))
    log.delete_before(2)
    log.close(clean=False)
    log = open_log("other-0", config=LogConfig(segment_bytes=1000), clean=False, start_offset=2)
    assert append(log, make_batch(1, size=700, producer_id=4, sequence=0)).duplicate


def test_compact_and_delete_do_both(filled):
    log = filled(retention_ms=5 * HOUR, compact=True, delete=True)
    assert log.apply_retention(T0 + 9 * HOUR) is True
    assert log.start_offset == 4


def test_a_record_of_the_future_keeps_its_segment_and_those_after_it(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=2200, retention_ms=HOUR))
    for number in range(10):
        ahead = 1000 * HOUR if number == 4 else 0
        append(log, make_batch(1, size=1000, timestamp=T0 + number * HOUR + ahead))
    log.apply_retention(T0 + 100 * HOUR)
    assert log.start_offset == 4
    log.apply_retention(T0 + 2000 * HOUR)
    assert log.start_offset == log.end_offset == 10


def test_a_check_looks_at_no_more_segments_than_go(open_log, make_batch, append, monkeypatch):
    log = open_log(config=LogConfig(segment_bytes=200, retention_ms=5 * HOUR, retention_bytes=1 << 40))
    for number in range(60):
        append(log, make_batch(1, size=100, timestamp=T0 + number * HOUR))
    assert log.segment_count > 50
    looked = []
    original = Segment.largest_timestamp_or_age

    def look(segment: Segment) -> int:
        looked.append(segment)
        return original(segment)

    monkeypatch.setattr(Segment, "largest_timestamp_or_age", look)
    assert log.apply_retention(T0 + 7 * HOUR) is True
    assert log.start_offset == 2
    assert len(looked) == 3
