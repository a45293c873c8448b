"""What stays of batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark.protocol.records import Record, build_batch, iter_records, read_header
from tidemark.storage import Log, LogConfig, job_for, measure, swap
from tidemark.storage.cleaning.clean import clean

T0 = 1_700_000_000_000
HORIZON = 0x40
CONFIG = LogConfig(segment_bytes=100_000, compact=True, delete=False, file_delete_delay_ms=0, delete_retention_ms=1000)


def write(log: Log, pairs: list[tuple[bytes, bytes | None]]) -> None:
    batch = build_batch([Record(timestamp=T0, key=key, value=value) for key, value in pairs])
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)


def compact(log: Log, *, now_ms: int, map_bytes: int, cleaned_up_to: int = 0) -> int:
    dirtiness = measure(log, cleaned_up_to=cleaned_up_to, high_watermark=log.end_offset, now_ms=now_ms)
    cleaning = clean(job_for(log, dirtiness, now_ms=now_ms, map_bytes=map_bytes, hash_seed=1), files=log.files)
    try:
        while True:
            swap(log, next(cleaning))
    except StopIteration as end:
        return int(end.value.end_offset)


def test_the_time_of_a_tombstone_begins_when_what_it_deletes_is_gone(
    open_log: Callable[..., Log], read_batches: Any
) -> None:
    """In a log with more keys than fit into the map, the end of a segment may be copied before its turn has come."""
    log = open_log(config=CONFIG)
    write(log, [(b"key", b"old")])
    for number in range(60):
        write(log, [(b"other%d" % number, b"value")])
    write(log, [(b"key", None)])
    log.roll()
    write(log, [(b"last", b"value")])
    log.flush()

    def tombstone() -> list[int]:
        return [
            header.attributes for header, batch in read_batches(log) for each in iter_records(batch) if not each.value
        ]

    end = compact(log, now_ms=T0, map_bytes=1000)
    assert end < 61
    assert tombstone() == [0]
    end = compact(log, now_ms=T0 + 5000, map_bytes=1 << 20, cleaned_up_to=end)
    assert end == 62
    assert tombstone() == [HORIZON]  # a reader that has seen the old value has a second to see this
    write(log, [(b"last", b"value")])
    log.roll()
    write(log, [(b"last", b"value")])
    log.flush()
    compact(log, now_ms=T0 + 6001, map_bytes=1 << 20, cleaned_up_to=end)
    assert tombstone() == []


def test_a_log_that_starts_within_the_last_batch_that_may_be_cleaned_is_cleaned(
    open_log: Callable[..., Log], read_batches: Any
) -> None:
    log = open_log(config=CONFIG)
    write(log, [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", b"2"), (b"a", b"3")])
    log.roll()
    write(log, [(b"last", b"value")])
    log.flush()
    log.delete_before(3)
    assert compact(log, now_ms=T0, map_bytes=1 << 20) == 5
    values = [each.value for _, batch in read_batches(log) for each in iter_records(batch) if each.offset >= 3]
    assert values == [b"2", b"3", b"value"]
