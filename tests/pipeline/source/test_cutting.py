"""Records cut by arrays are the records that the plain iterator reads one by one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.pipeline.source.arrow import record_batch
from tidemark.pipeline.source.cutting import cut, payload_groups
from tidemark.pipeline.source.walking import AbortedTransactions, walk
from tidemark.protocol.records import InvalidBatch, Record, build_batch, iter_records, stamp_append_time

NOON_MS = 1_790_000_000_000
BLOB = st.none() | st.binary(max_size=40) | st.just(b"same size")
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=9)), max_size=4)
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp=st.integers(NOON_MS - 10**6, NOON_MS + 10**6),
        key=BLOB,
        value=BLOB,
        headers=HEADERS,
    ),
    min_size=1,
    max_size=12,
)
Rows = list[tuple[object, ...]]


def rows_of(log: bytes, *, first: int = 0, end: int = 1 << 40, limit: int = 1 << 20) -> Rows:
    view = memoryview(log)
    seen = walk(view, first=first, end=end, aborted=AbortedTransactions())
    rows: Rows = []
    for payloads in payload_groups(view, seen.batches, limit=limit):
        records = cut(payloads).between(first, end)
        for row in record_batch(records, topic="t", partition=3, with_headers=True).to_pylist():
            assert (row["topic"], row["partition"]) == ("t", 3)
            headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
            assert row["headers"] is None or headers
            time_ms = round(row["timestamp"].timestamp() * 1000)
            rows.append((row["offset"], time_ms, row["key"], row["value"], headers, row["timestampType"]))
    return rows


def expected_rows(*batches: bytes | bytearray) -> Rows:
    return [
        (each.offset, each.timestamp, each.key, each.value, list(each.headers), memoryview(batch)[22] >> 3 & 1)
        for batch in batches
        for each in iter_records(batch)
    ]


@given(
    batches=st.lists(st.tuples(RECORDS, st.integers(0, 4)), min_size=1, max_size=4), limit=st.sampled_from([1, 1 << 20])
)
@settings(deadline=None, max_examples=60)
def test_any_batches_give_what_the_iterator_reads(batches: list[tuple[list[Record], int]], limit: int) -> None:
    built, offset = [], 0
    for records, codec in batches:
        built.append(build_batch(records, base_offset=offset, compression=codec))
        offset += len(records)
    assert rows_of(b"".join(built), limit=limit) == expected_rows(*built)


@pytest.mark.parametrize("size", [0, 1, 50, 58, 130, 9_000])
@pytest.mark.parametrize("codec", [0, 4])
def test_runs_of_one_size_are_stepped_over_exactly(size: int, codec: int) -> None:
    """300 records: the offset's varint grows on the way, and now and then another size lies between."""
    records = [Record(timestamp=NOON_MS + number, value=bytes(size + (number % 97 == 96))) for number in range(300)]
    batch = build_batch(records, compression=codec)
    assert rows_of(bytes(batch) * 2)[:300] == expected_rows(batch)


def test_offsets_missing_after_compaction_stay_missing() -> None:
    batch = build_batch([Record(offset, NOON_MS, b"k", b"v") for offset in (12, 15, 90)], base_offset=10)
    assert [row[0] for row in rows_of(bytes(batch))] == [12, 15, 90]
    assert [row[0] for row in rows_of(bytes(batch), first=13, end=90)] == [15]


def test_append_time_is_the_time_of_every_record() -> None:
    batch = build_batch([Record(timestamp=NOON_MS + number, value=b"v") for number in range(3)])
    stamp_append_time(batch, timestamp=NOON_MS + 777)
    assert {row[1] for row in rows_of(bytes(batch))} == {NOON_MS + 777}
    assert rows_of(bytes(batch)) == expected_rows(batch)


def test_a_header_key_that_is_no_utf8_is_replaced_as_java_does() -> None:
    batch = build_batch([Record(timestamp=NOON_MS, headers=[("ab", b"x")])])
    damaged = bytes(batch).replace(b"\x04ab", b"\x04\xffb")
    [payloads] = payload_groups(memoryview(damaged), [(build_header(damaged), 0)])  # type: ignore[list-item]
    [row] = record_batch(cut(payloads), topic="t", partition=0, with_headers=True).to_pylist()
    assert row["headers"] == [{"key": "\ufffdb", "value": b"x"}]


def build_header(batch: bytes) -> object:
    from tidemark.protocol.records import read_header

    return read_header(batch)


@pytest.mark.parametrize("seed", range(40))
def test_damaged_payloads_raise_one_kind_of_error(seed: int) -> None:
    """The CRC keeps these from us; a producer that lies does not."""
    chance = random.Random(seed)
    records = [
        Record(
            timestamp=NOON_MS, key=chance.randbytes(3), value=chance.randbytes(20), headers=[("a", b"b")] * (each % 3)
        )
        for each in range(30)
    ]
    batch = bytearray(build_batch(records))
    for _ in range(30):
        damaged = bytearray(batch)
        for _ in range(chance.choice([1, 1, 5])):
            damaged[chance.randrange(61, len(damaged))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        try:
            [payloads] = payload_groups(memoryview(damaged), [(build_header(bytes(batch)), 0)])  # type: ignore[list-item]
            record_batch(cut(payloads), topic="t", partition=0, with_headers=True)
        except InvalidBatch:
            continue
