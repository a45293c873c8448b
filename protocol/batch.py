"""A record batch as the broker sees it: a 61-byte header, and bytes that it does not look into.

Offsets of the header's fields matter here: the base offset (byte 0) and the leader epoch (byte 12) lie outside the
CRC, which covers everything from the attributes (byte 21) to the end. That is what lets a leader place a batch in its
log without touching the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from tidemark.protocol.checksum import crc32c

HEADER_SIZE: Final = 61
LENGTH_MIN: Final = HEADER_SIZE - 12  # of batch_length, which counts what follows it
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

Buffer = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_unpack_header = HEADER.unpack_from
_put_offset = struct.Struct(">q").pack_into
_put_int32 = struct.Struct(">i").pack_into
_put_crc = struct.Struct(">I").pack_into
_new_tuple = tuple.__new__


class InvalidBatch(ValueError):
    """A record batch that no log may hold."""


class CorruptBatch(InvalidBatch):
    """Sizes or CRC do not agree with the bytes."""


class TruncatedBatch(CorruptBatch):
    """The bytes end before the batch does."""


class UnsupportedMagic(InvalidBatch):
    """A record format older than Kafka 0.11's."""


class UnknownMagic(UnsupportedMagic):
    """A record format newer than we know, if it is one at all."""


class InvalidRecordCount(InvalidBatch):
    """The number of records does not agree with the batch's range of offsets."""


class InvalidProducerFields(InvalidBatch):
    """A batch with a producer id, but without the epoch and sequence that must come with it."""


class NotOneBatch(InvalidBatch):
    """A producer sends one batch per partition and request, no more and no less."""


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return 12 + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence numbers wrap to zero after the largest int32."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """0: the producer's own (CreateTime), 1: the broker's (LogAppendTime)."""
        return self.attributes >> 3 & 1

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, as it is. The caller knows that 61 bytes are there."""
    return _new_tuple(BatchHeader, _unpack_header(buf, pos))


def verify_batch(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Check that an intact batch starts at `pos`: magic, sizes and CRC. For batches that were in a log before, where
    compaction may have removed records."""
    if type(buf) is not memoryview:
        buf = memoryview(buf)
    left = len(buf) - pos
    if left < HEADER_SIZE:
        raise _too_short(buf, pos)
    header = _new_tuple(BatchHeader, _unpack_header(buf, pos))
    length = header[1]
    if header[3] != MAGIC:
        raise _bad_magic(header[3])
    if not LENGTH_MIN <= length <= left - 12:
        kind = CorruptBatch if length < LENGTH_MIN else TruncatedBatch
        raise kind(f"batch of {length + 12} bytes with {left} left")
    if crc32c(buf[pos + 21 : pos + 12 + length]) != header[4]:
        raise CorruptBatch(f"CRC-32C does not match in the batch of base offset {header[0]}, {length + 12} bytes")
    return header


def check_batch(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Check a batch that a producer sent: intact, and consistent in its counts and producer fields.

    This is on the path of every produced batch. The batch may be followed by others; see `check_single_batch`.
    """
    header = verify_batch(buf, pos)
    count = header[12]
    if count <= 0 or count != header[6] + 1:
        raise InvalidRecordCount(f"{count} records with a last offset delta of {header[6]}")
    if header[9] >= 0 and (header[10] < 0 or header[11] < 0) and not header[5] & CONTROL:
        raise InvalidProducerFields(f"producer {header[9]} with epoch {header[10]} and sequence {header[11]}")
    return header


def check_single_batch(buf: Buffer) -> BatchHeader:
    """`check_batch`, where nothing may follow."""
    header = check_batch(buf)
    if header[1] + 12 != len(buf):
        raise NotOneBatch(f"{len(buf) - header[1] - 12} bytes follow the first batch")
    return header


def _too_short(buf: memoryview, pos: int) -> InvalidBatch:
    # The formats of magic 0 and 1 are shorter than our header, but have the magic at the same place.
    if len(buf) - pos > 16 and buf[pos + 16] in (0, 1):
        return _bad_magic(buf[pos + 16])
    return TruncatedBatch(f"{len(buf) - pos} bytes cannot hold a batch")


def _bad_magic(magic: int) -> UnsupportedMagic:
    kind = UnsupportedMagic if 0 <= magic < MAGIC else UnknownMagic
    return kind(f"record format {magic}, only {MAGIC} is supported")


def iter_batches(buf: Buffer, *, partial_tail: bool = False) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Every batch in `buf` with its bytes, unchecked. A torn last one is an error or, with `partial_tail`, the end."""
    view = memoryview(buf)
    pos, end = 0, len(view)
    while pos < end:
        if partial_tail and end - pos < HEADER_SIZE:
            return
        if end - pos < HEADER_SIZE:
            raise _too_short(view, pos)
        header = read_header(view, pos)
        if header.magic != MAGIC:
            raise _bad_magic(header.magic)
        if header.batch_length < LENGTH_MIN:
            raise CorruptBatch(f"batch of {header.size} bytes at byte {pos}")
        stop = pos + header.size
        if stop > end:
            if partial_tail:
                return
            raise TruncatedBatch(f"batch of {header.size} bytes with {end - pos} left")
        yield header, view[pos:stop]
        pos = stop


def place_batch(buf: bytearray | memoryview, pos: int = 0, *, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `pos` its place in the log. Both fields lie outside the CRC."""
    _put_offset(buf, pos, base_offset)
    _put_int32(buf, pos + 12, leader_epoch)


def stamp_append_time(buf: bytearray | memoryview, pos: int = 0, *, timestamp: int) -> None:
    """Make `timestamp` the time of every record of the batch at `pos` (message.timestamp.type=LogAppendTime)."""
    buf[pos + 22] |= LOG_APPEND_TIME
    _put_offset(buf, pos + 35, timestamp)
    write_crc(buf, pos)


def write_max_timestamp(buf: bytearray | memoryview, pos: int = 0, *, timestamp: int) -> None:
    """Put right what the batch at `pos` says of its records' timestamps."""
    _put_offset(buf, pos + 35, timestamp)
    write_crc(buf, pos)


def write_crc(buf: bytearray | memoryview, pos: int = 0) -> None:
    """Bring the CRC of the batch at `pos` up to date with its bytes."""
    view = memoryview(buf)
    (length,) = struct.unpack_from(">i", view, pos + 8)
    _put_crc(view, pos + 17, crc32c(view[pos + 21 : pos + 12 + length]))
