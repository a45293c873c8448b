"""Records inside batches: against kafka-python and aiokafka's formats, all codecs, and against damage."""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.record.memory_records import MemoryRecords as AioMemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from tidemark.protocol.record import put_varint, read_varint
from tidemark.protocol.records import (
    HEADER_SIZE,
    EndTransaction,
    InvalidBatch,
    InvalidRecord,
    Record,
    build_batch,
    build_end_transaction,
    check_batch,
    iter_records,
    keyless_records,
    read_end_transaction,
    read_header,
    recompress,
    write_crc,
)

CODECS = range(5)
RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value", []),
    Record(1, 1_700_000_000_500, None, b"no key", [("h", b"1"), ("h", None), ("ü", b"")]),
    Record(2, 1_699_999_999_000, b"tombstone", None, []),
    Record(3, 1_700_000_000_001, b"", b"", []),
    Record(4, 1_700_000_000_001, b"big", b"tide" * 20_000, []),
]


def as_tuples(records: Any) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, [tuple(header) for header in r.headers]) for r in records]


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python_reads_what_we_build(codec: int) -> None:
    batch = build_batch(RECORDS, compression=codec)
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs.validate_crc()
    assert as_tuples(theirs) == as_tuples(RECORDS)


@pytest.mark.parametrize("codec", CODECS)
def test_aiokafka_reads_what_we_build(codec: int) -> None:
    theirs = AioMemoryRecords(bytes(build_batch(RECORDS, compression=codec))).next_batch()
    assert theirs is not None
    assert theirs.validate_crc()
    assert as_tuples(theirs) == as_tuples(RECORDS)


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_what_kafka_python_builds(codec: int) -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=True,
        producer_id=5,
        producer_epoch=1,
        base_sequence=10,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(RECORDS):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = builder.build()
    header = check_batch(batch)
    assert (header.producer_id, header.is_transactional, header.compression) == (5, True, codec)
    assert as_tuples(iter_records(batch)) == as_tuples(RECORDS)


def test_an_uncompressed_batch_is_kafka_pythons_byte_for_byte() -> None:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, record in enumerate(RECORDS):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    ours = build_batch(RECORDS)
    theirs = bytearray(builder.build())
    theirs[12:16] = ours[12:16]  # kafka-python leaves another leader epoch
    assert ours == theirs


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
def test_recompressing_keeps_everything_else(source: int, target: int) -> None:
    batch = build_batch(RECORDS, base_offset=0, producer_id=3, producer_epoch=1, base_sequence=4, compression=source)
    other = recompress(memoryview(batch), target)
    assert check_batch(other).compression == target
    assert list(iter_records(other)) == list(iter_records(batch))
    same = ("crc", "attributes", "batch_length")
    zeroes = dict.fromkeys(same, 0)
    assert read_header(other)._replace(**zeroes) == read_header(batch)._replace(**zeroes)


def test_offsets_may_have_gaps() -> None:
    batch = build_batch([Record(offset=10, value=b"a"), Record(offset=17, value=b"b")], base_offset=10)
    assert [record.offset for record in iter_records(batch)] == [10, 17]
    assert read_header(batch).last_offset == 17


def test_a_batch_holds_at_least_one_record() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([])


@pytest.mark.parametrize("codec", CODECS)
def test_a_keyless_record_is_found(codec: int) -> None:
    keyed = [Record(key=b"", value=b"x"), Record(key=b"k", value=None)]
    assert not keyless_records(build_batch(keyed, compression=codec))
    assert keyless_records(build_batch([*keyed, Record(value=b"x")], compression=codec)) == [len(keyed)]


# -- markers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commit", [False, True])
def test_a_transaction_marker_is_a_control_batch(commit: bool) -> None:
    marker = EndTransaction(producer_id=7, producer_epoch=3, commit=commit, coordinator_epoch=12)
    batch = build_end_transaction(marker, timestamp=123, base_offset=50, leader_epoch=4)
    header = check_batch(batch)
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert read_end_transaction(batch) == marker
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert theirs.is_control_batch
    record = next(iter(theirs))
    assert (record.abort, record.commit) == (not commit, commit)


def test_other_control_records_are_no_transaction_markers() -> None:
    leader_change = build_batch([Record(key=struct.pack(">hh", 0, 2), value=b"")], control=True)
    assert read_end_transaction(leader_change) is None
    for bad in (
        build_batch([Record(value=b"x")]),
        build_batch([Record(value=b"x")], control=True),
        build_batch([Record(key=struct.pack(">hh", 0, 1), value=b"")], control=True),
    ):
        with pytest.raises(InvalidRecord):
            read_end_transaction(bad)


# -- damage ---------------------------------------------------------------------------------------------------------


def exhaust(batch: bytearray) -> None:
    with suppress(InvalidBatch):
        list(iter_records(batch, limit_bytes=1 << 20))
    with suppress(InvalidBatch):
        keyless_records(batch, limit_bytes=1 << 20)
    with suppress(InvalidBatch):
        recompress(batch, 1, limit_bytes=1 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_payloads_raise_one_kind_of_error(codec: int) -> None:
    rng = random.Random(codec)
    batch = build_batch(RECORDS[:4], compression=codec)
    for _ in range(1500):
        damaged = bytearray(batch)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(HEADER_SIZE, len(damaged))] ^= 1 << rng.randrange(8)
        exhaust(damaged)
        exhaust(damaged[: rng.randrange(HEADER_SIZE, len(damaged))])


@given(st.binary(max_size=80), st.integers(-5, 200))
def test_random_payloads_raise_one_kind_of_error(payload: bytes, count: int) -> None:
    batch = build_batch([Record(value=b"")])[:HEADER_SIZE] + payload
    struct.pack_into(">i", batch, 57, count)
    exhaust(batch)


def test_records_must_fill_the_batch_exactly() -> None:
    batch = build_batch(RECORDS[:2])
    struct.pack_into(">i", batch, 57, 1)
    with pytest.raises(InvalidRecord, match="follow the last of 1 records"):
        list(iter_records(batch))
    struct.pack_into(">i", batch, 57, 3)
    with pytest.raises(InvalidRecord, match="ends early"):
        list(iter_records(batch))


def test_a_bomb_is_refused() -> None:
    bomb = build_batch([Record(value=bytes(5_000_000))], compression=4)
    assert len(bomb) < 10_000
    with pytest.raises(InvalidRecord, match="more than 1000000 bytes"):
        list(iter_records(bomb, limit_bytes=1_000_000))


def test_a_codec_that_does_not_exist_is_refused() -> None:
    batch = build_batch(RECORDS[:1])
    batch[22] |= 6
    write_crc(batch)
    with pytest.raises(InvalidRecord, match="no compression codec 6"):
        list(iter_records(batch))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints_survive_a_round_trip(value: int) -> None:
    out = bytearray()
    put_varint(out, value)
    assert read_varint(memoryview(out), 0) == (value, len(out))
    assert len(out) <= 10


@pytest.mark.parametrize("data", [b"\xff" * 9 + b"\x7f", b"\xff" * 11, b"\x80" * 10 + b"\0"])
def test_a_varint_that_is_too_long_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRecord):
        read_varint(memoryview(data), 0)
