"""Batch headers: reading, checking, placing, and what is refused."""

from __future__ import annotations

import random
import struct
from contextlib import suppress

import pytest
from kafka.record import MemoryRecords

from tidemark.protocol.checksum import crc32c
from tidemark.protocol.records import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    InvalidBatch,
    InvalidProducerFields,
    InvalidRecordCount,
    NotOneBatch,
    Record,
    UnsupportedMagic,
    build_batch,
    check_batch,
    check_single_batch,
    iter_batches,
    iter_records,
    place_batch,
    read_header,
    stamp_append_time,
    verify_batch,
    write_crc,
)

RECORDS = [Record(timestamp=1000 + index, key=b"k%d" % index, value=b"v" * 50) for index in range(3)]


def changed(batch: bytearray, **fields: int) -> bytearray:
    """The batch with other header fields, and a CRC that is right again."""
    made = bytearray(struct.pack(">qiibIhiqqqhii", *read_header(batch)._replace(**fields))) + batch[HEADER_SIZE:]
    write_crc(made)
    return made


def test_crc_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283


def test_a_header_reads_as_it_was_built() -> None:
    batch = build_batch(RECORDS, base_offset=40, leader_epoch=6, producer_id=9, producer_epoch=2, base_sequence=77)
    header = check_batch(batch)
    assert header == read_header(batch)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1002)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (9, 2, 77, 79)
    assert (header.partition_leader_epoch, header.record_count, header.magic) == (6, 3, 2)
    assert not header.is_control
    assert not header.is_transactional
    assert (header.compression, header.timestamp_type) == (0, 0)


def test_sequences_wrap_to_zero() -> None:
    header = read_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=0x7FFFFFFF))
    assert header.last_sequence == 1
    assert read_header(build_batch(RECORDS)).last_sequence == -1


def test_placing_a_batch_keeps_its_crc() -> None:
    batch = build_batch(RECORDS)
    frame = memoryview(bytearray(b"xx" + batch + b"yy"))
    place_batch(frame, 2, base_offset=1 << 40, leader_epoch=12)
    header = check_batch(frame, 2)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 12)
    assert bytes(frame[:2]) + bytes(frame[-2:]) == b"xxyy"


def test_append_time_is_every_records_time() -> None:
    batch = build_batch(RECORDS)
    stamp_append_time(batch, timestamp=5_000_000)
    header = check_batch(batch)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, 5_000_000, 1000)
    assert {record.timestamp for record in iter_records(batch)} == {5_000_000}
    theirs = MemoryRecords(bytes(batch)).next_batch()
    assert {record.timestamp for record in theirs} == {5_000_000}


def test_every_flipped_bit_is_noticed() -> None:
    batch = build_batch(RECORDS)
    for index in range(8 * len(batch)):
        if index // 8 in {*range(8), *range(12, 16)}:
            continue  # base offset and leader epoch lie outside the CRC
        damaged = bytearray(batch)
        damaged[index // 8] ^= 1 << index % 8
        with pytest.raises(InvalidBatch):
            check_batch(damaged)


def test_a_batch_cut_anywhere_is_corrupt() -> None:
    batch = memoryview(build_batch(RECORDS))
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            check_batch(batch[:size])


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31), (1 << 31) - 1])
def test_a_length_that_cannot_be_is_corrupt(length: int) -> None:
    batch = build_batch(RECORDS)
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptBatch):
        check_batch(batch)


@pytest.mark.parametrize("magic", [0, 1, 3, -1])
def test_other_record_formats_are_unsupported(magic: int) -> None:
    batch = build_batch(RECORDS)
    struct.pack_into(">b", batch, 16, magic)
    with pytest.raises(UnsupportedMagic):
        check_batch(batch)
    with pytest.raises(UnsupportedMagic):
        list(iter_batches(batch))


def test_a_short_message_of_an_old_format_is_unsupported_not_corrupt() -> None:
    with pytest.raises(UnsupportedMagic, match="record format 1"):
        check_batch(bytes(16) + b"\1" + bytes(20))


@pytest.mark.parametrize(
    "fields", [{"record_count": 0}, {"record_count": 2}, {"last_offset_delta": 3}, {"record_count": -3}]
)
def test_counts_that_disagree_are_refused_from_a_producer(fields: dict[str, int]) -> None:
    batch = changed(build_batch(RECORDS), **fields)
    with pytest.raises(InvalidRecordCount):
        check_batch(batch)
    assert isinstance(verify_batch(batch), BatchHeader)  # as compaction may have left it


def test_a_producer_id_needs_epoch_and_sequence() -> None:
    batch = build_batch(RECORDS, producer_id=5, producer_epoch=0, base_sequence=0)
    check_batch(batch)
    for field in ("producer_epoch", "base_sequence"):
        with pytest.raises(InvalidProducerFields):
            check_batch(changed(batch, **{field: -1}))


def test_nothing_may_follow_a_single_batch() -> None:
    batch = build_batch(RECORDS)
    assert check_single_batch(batch).record_count == 3
    with pytest.raises(NotOneBatch):
        check_single_batch(batch + batch)


def test_batches_are_found_one_after_another() -> None:
    batches = [build_batch(RECORDS, base_offset=offset) for offset in (0, 3, 6)]
    log = b"".join(batches)
    assert [header.base_offset for header, _ in iter_batches(log)] == [0, 3, 6]
    assert [bytes(view) for _, view in iter_batches(log)] == batches
    assert list(iter_batches(b"")) == []


def test_a_torn_tail_is_an_error_or_the_end() -> None:
    batch = build_batch(RECORDS)
    for size in range(1, len(batch)):
        log = batch + batch[:size]
        assert len(list(iter_batches(log, partial_tail=True))) == 1
        with pytest.raises(CorruptBatch):
            list(iter_batches(log))


def test_random_bytes_are_refused_with_one_kind_of_error() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        data = bytearray(rng.randbytes(rng.randrange(120)))
        if len(data) > 16:
            data[16] = 2
        with suppress(InvalidBatch):
            check_batch(data)
        with suppress(InvalidBatch):
            list(iter_batches(data))
