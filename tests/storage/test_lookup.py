from __future__ import annotations

import pytest

from tidemark.storage import LogConfig

T0 = 1_700_000_000_000


@pytest.fixture(params=[0, 1, 2, 3, 4], ids=["plain", "gzip", "snappy", "lz4", "zstd"])
def log(request, open_log, make_batch, append):
    """Ten segments or so; batches of three records, ten apart, each record one later than the one before."""
    log = open_log(config=LogConfig(segment_bytes=1500, index_interval_bytes=100))
    for number in range(50):
        append(
            log,
            make_batch(3, size=40, timestamp=T0 + 10 * number, compression=request.param),
            leader_epoch=number // 10,
        )
    return log


@pytest.mark.parametrize(
    ("timestamp", "offset", "found"),
    [(0, 0, 0), (T0 + 1, 1, 1), (T0 + 3, 3, 10), (T0 + 10, 3, 10), (T0 + 251, 76, 251), (T0 + 492, 149, 492)],
)
def test_the_first_record_at_or_after_a_time_is_found(log, timestamp, offset, found):
    assert log.offset_for_timestamp(timestamp) == (offset, T0 + found, offset // 30)


def test_after_the_last_record_nothing_is_found(log):
    assert log.offset_for_timestamp(T0 + 493) is None


def test_records_before_the_start_are_not_found(log):
    log.delete_before(77)
    assert log.offset_for_timestamp(T0)[0] == 77


def test_the_latest_record_is_found(log):
    assert log.offset_of_max_timestamp() == (149, T0 + 492, 4)


def test_the_first_of_several_latest_records_is_found(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=1000))
    for timestamp in (T0, T0 + 50, T0 + 10, T0 + 50, T0 + 20):
        append(log, make_batch(2, size=300, timestamp=timestamp))
    assert log.offset_of_max_timestamp() == (3, T0 + 51, 0)


def test_an_empty_log_has_no_times(open_log):
    log = open_log()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_the_brokers_time_stands_for_every_record_of_a_batch(open_log, make_batch, append):
    log = open_log()
    append(log, make_batch(3, timestamp=T0, timestamp_type=1))
    append(log, make_batch(3, timestamp=T0 + 10, timestamp_type=1))
    # The batch's own time is its largest: T0+2.
    assert log.offset_for_timestamp(T0) == (0, T0 + 2, 0)
    assert log.offset_for_timestamp(T0 + 3) == (3, T0 + 12, 0)


def test_times_out_of_order_are_found_by_the_first_in_the_log(open_log, make_batch, append):
    log = open_log(config=LogConfig(segment_bytes=1000, index_interval_bytes=0))
    for timestamp in (100, 50, 300, 20, 200, 400):
        append(log, make_batch(1, size=100, timestamp=timestamp))
    assert [log.offset_for_timestamp(timestamp)[0] for timestamp in (10, 100, 101, 200, 300, 301)] == [0, 0, 2, 2, 2, 5]


@pytest.mark.parametrize("clean", [True, False])
def test_times_are_found_after_a_restart(log, open_log, clean):
    log.close(clean=clean)
    log = open_log(config=LogConfig(segment_bytes=1500, index_interval_bytes=100), clean=clean)
    assert log.offset_for_timestamp(T0 + 251)[0] == 76
    assert log.offset_of_max_timestamp() == (149, T0 + 492, 4)
