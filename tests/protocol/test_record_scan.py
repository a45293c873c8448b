"""The scan's verdict is that of a decoder written for plainness, over sound batches and over damaged ones."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.protocol.record import InvalidRecord, put_varint
from tidemark.protocol.record_scan import INDEXES_MAX, RecordScan
from tidemark.protocol.records import HEADER_SIZE, BatchHeader, Record, build_batch, iter_records, read_header

BASE = 1_700_000_000_000


class Verdict(NamedTuple):
    keyless: list[int]
    untimely: list[int]
    max_timestamp: int


class Malformed(Exception):
    pass


class Reader:
    """The reference: one byte after the other, every bound checked where it is passed."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 0

    def byte(self) -> int:
        if self.at >= len(self.payload):
            raise Malformed
        self.at += 1
        return self.payload[self.at - 1]

    def varint(self, bytes_max: int) -> int:
        raw = 0
        for position in range(bytes_max):
            byte = self.byte()
            raw += (byte % 128) << (7 * position)
            if byte < 128:
                return raw // 2 if raw % 2 == 0 else -(raw // 2) - 1
        raise Malformed

    def field(self) -> bool:
        """Skips bytes with their length; whether there are any, rather than null."""
        length = self.varint(5)
        self.at += max(0, length)
        if self.at > len(self.payload):
            raise Malformed
        return length >= 0

    def record(self, header: BatchHeader, index: int) -> tuple[int, bool]:
        size = self.varint(5)
        end = self.at + size
        self.byte()
        timestamp = header.base_timestamp + self.varint(10)
        if self.varint(5) != index:
            raise Malformed
        has_key = self.field()
        self.field()
        headers = self.varint(5)
        if headers < 0:
            raise Malformed
        for _ in range(headers):
            if not self.field():
                raise Malformed
            self.field()
        if self.at != end:
            raise Malformed
        return timestamp, has_key


def reference(header: BatchHeader, payload: bytes, *, earliest: int, latest: int) -> Verdict | None:
    reader = Reader(payload)
    try:
        records = [reader.record(header, index) for index in range(header.record_count)]
    except Malformed:
        return None
    if reader.at != len(payload):
        return None
    return Verdict(
        [index for index, (_, has_key) in enumerate(records) if not has_key],
        [index for index, (time, _) in enumerate(records) if time != -1 and not earliest <= time <= latest],
        max(time for time, _ in records),
    )


def scanned(header: BatchHeader, payload: bytes, *, earliest: int, latest: int, step: int = 1 << 31) -> Verdict | None:
    try:
        scan = RecordScan(header, memoryview(payload), earliest=earliest, latest=latest)
        while not scan.advance(step):
            pass
    except InvalidRecord:
        return None
    return Verdict(scan.keyless, scan.untimely, scan.max_timestamp)


blobs = st.one_of(st.none(), st.binary(max_size=70), st.sampled_from([bytes(63), bytes(64), bytes(8191), bytes(8192)]))
timestamps = st.one_of(st.integers(BASE - 100, BASE + 100), st.integers(-(2**62), 2**62), st.just(-1))
headers = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
records = st.builds(Record, offset=st.just(-1), timestamp=timestamps, key=blobs, value=blobs, headers=headers)


def batch_of(made: list[Record]) -> tuple[BatchHeader, bytes]:
    batch = build_batch(made)
    return read_header(batch), bytes(batch[HEADER_SIZE:])


@given(st.lists(records, min_size=1, max_size=80), st.integers(1, 90))
def test_a_sound_batch_is_found_sound(made: list[Record], step: int) -> None:
    header, payload = batch_of(made)
    bounds: Any = {"earliest": BASE - 50, "latest": BASE + 50}
    verdict = scanned(header, payload, step=step, **bounds)
    assert verdict is not None
    assert verdict == reference(header, payload, **bounds)
    assert verdict.max_timestamp == max(record.timestamp for record in made)
    assert verdict.keyless == [index for index, record in enumerate(made) if record.key is None]


mutations = st.lists(
    st.tuples(st.sampled_from(["set", "drop", "insert", "repeat"]), st.integers(0, 1 << 16), st.integers(0, 255)),
    min_size=1,
    max_size=3,
)


def mutated(payload: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    data = bytearray(payload)
    for what, where, byte in changes:
        at = where % (len(data) + 1)
        if what == "set" and at < len(data):
            data[at] = byte
        elif what == "drop":
            del data[at : at + 1 + byte % 4]
        elif what == "insert":
            data[at:at] = bytes([byte])
        elif what == "repeat":
            data[at:at] = data[at : at + byte]
    return bytes(data)


@given(st.lists(records, min_size=1, max_size=10), mutations, st.integers(-1, 1), st.integers(1, 12))
def test_a_damaged_batch_is_judged_as_the_reference_judges_it(
    made: list[Record], changes: list[tuple[str, int, int]], more: int, step: int
) -> None:
    header, payload = batch_of(made)
    header = header._replace(record_count=max(1, header.record_count + more))
    damaged = mutated(payload, changes)
    bounds: Any = {"earliest": BASE - 50, "latest": BASE + 50}
    assert scanned(header, damaged, step=step, **bounds) == reference(header, damaged, **bounds)


def raw_record(offset: bytes = b"\0", *, key: bytes = b"\1", value: bytes = b"\1", rest: bytes = b"\0") -> bytes:
    body = b"\0\0" + offset + key + value + rest
    out = bytearray()
    put_varint(out, len(body))
    return bytes(out) + body


@given(st.lists(st.binary(min_size=1, max_size=6), min_size=1, max_size=6))
def test_odd_varints_are_judged_as_the_reference_judges_them(fields: list[bytes]) -> None:
    fields += [b"\0"] * (4 - len(fields))
    payload = raw_record(fields[0], key=fields[1], value=fields[2], rest=b"".join(fields[3:]))
    header, _ = batch_of([Record(timestamp=BASE)])
    bounds: Any = {"earliest": BASE - 50, "latest": BASE + 50}
    assert scanned(header, payload, **bounds) == reference(header, payload, **bounds)


@pytest.mark.parametrize("change", [0, 5, -1])
def test_offset_deltas_count_from_zero(change: int) -> None:
    offset = bytearray()
    put_varint(offset, 1 + change)
    payload = raw_record() + raw_record(bytes(offset))
    header, _ = batch_of([Record(timestamp=BASE)] * 2)
    assert (scanned(header, payload, earliest=0, latest=2 * BASE) is not None) == (change == 0)


def test_a_count_that_cannot_be_true_is_refused_before_anything_is_read() -> None:
    header, payload = batch_of([Record(timestamp=BASE)])
    with pytest.raises(InvalidRecord, match="do not fit"):
        RecordScan(header._replace(record_count=1_000_000_000), payload, earliest=0, latest=0)


def test_many_records_at_fault_are_not_all_told() -> None:
    header, payload = batch_of([Record(timestamp=BASE)] * (INDEXES_MAX + 10))
    verdict = scanned(header, payload, earliest=0, latest=1)
    assert verdict is not None
    assert len(verdict.keyless) == len(verdict.untimely) == INDEXES_MAX


def test_what_is_sound_can_be_read_by_the_iterator() -> None:
    batch = build_batch([Record(timestamp=BASE, value=b"v", headers=[("h", None)])] * 200)
    header = read_header(batch)
    assert scanned(header, bytes(batch[HEADER_SIZE:]), earliest=0, latest=2 * BASE) is not None
    assert len(list(iter_records(batch))) == 200
    struct.pack_into(">i", batch, 57, 199)
    assert scanned(read_header(batch), bytes(batch[HEADER_SIZE:]), earliest=0, latest=2 * BASE) is None
