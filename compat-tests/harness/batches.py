"""Record batches written byte by byte, so that each field can also be written wrong.

Written apart from the broker's own record code on purpose: the two must agree without sharing a line.
"""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
AFTER_CRC = struct.Struct(">hiqqqhii")
AFTER_CRC_AT = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    value: bytes | None = b""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_delta: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a batch says of itself; None means "what is true"."""

    records: tuple[Record, ...] = (Record(value=b"v"),)
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    base_timestamp: int = field(default_factory=lambda: int(time.time() * 1000))
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    record_count: int | None = None
    last_offset_delta: int | None = None
    crc: int | None = None
    length: int | None = None
    payload: bytes | None = None

    def but(self, **changes: object) -> Batch:
        return replace(self, **changes)  # type: ignore[arg-type]

    def encode(self) -> bytes:
        payload = self.payload if self.payload is not None else encode_records(self.records, attributes=self.attributes)
        count = len(self.records)
        latest = self.base_timestamp + max((record.timestamp_delta for record in self.records), default=0)
        after_crc = AFTER_CRC.pack(
            self.attributes,
            count - 1 if self.last_offset_delta is None else self.last_offset_delta,
            self.base_timestamp,
            latest if self.max_timestamp is None else self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            count if self.record_count is None else self.record_count,
        )
        crc = crc32c.crc32c(after_crc + payload) if self.crc is None else self.crc
        length = 9 + len(after_crc) + len(payload) if self.length is None else self.length
        return struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc) + after_crc + payload


def batch_of(*values: bytes | None, **changes: object) -> bytes:
    return Batch(records=tuple(Record(value=value) for value in values)).but(**changes).encode()


def encode_records(records: Sequence[Record], *, attributes: int = 0) -> bytes:
    plain = b"".join(_encode_record(record, offset_delta=delta) for delta, record in enumerate(records))
    codec = attributes & 7
    if codec == 1:
        return gzip.compress(plain)
    return plain


def _encode_record(record: Record, *, offset_delta: int) -> bytes:
    body = bytearray(b"\0")
    body += varint(record.timestamp_delta) + varint(offset_delta)
    body += _bytes(record.key) + _bytes(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _bytes(name.encode()) + _bytes(value)
    return varint(len(body)) + bytes(body)


def _bytes(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def varint(value: int) -> bytes:
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBatch:
    base_offset: int
    leader_epoch: int
    magic: int
    attributes: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    base_sequence: int
    values: tuple[bytes | None, ...]
    size: int


def read_batches(data: bytes) -> list[ReadBatch]:
    """The whole batches in a fetch answer: CRC checked, a cut tail left out as clients do."""
    found: list[ReadBatch] = []
    position = 0
    while position + HEADER.size <= len(data):
        (base, length, epoch, magic, crc, attributes, last_delta, first_ts, max_ts, pid, _, sequence, count) = (
            HEADER.unpack_from(data, position)
        )
        end = position + 12 + length
        if end > len(data):
            break
        assert crc32c.crc32c(data[position + AFTER_CRC_AT : end]) == crc, "the broker served a batch with a bad CRC"
        values = _values(data[position + HEADER.size : end], count=count) if attributes & 7 == 0 else ()
        found.append(
            ReadBatch(
                base_offset=base,
                leader_epoch=epoch,
                magic=magic,
                attributes=attributes,
                last_offset=base + last_delta,
                base_timestamp=first_ts,
                max_timestamp=max_ts,
                producer_id=pid,
                base_sequence=sequence,
                values=values,
                size=end - position,
            )
        )
        position = end
    return found


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    shift = result = 0
    while True:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), position
        shift += 7


def _values(data: bytes, *, count: int) -> tuple[bytes | None, ...]:
    values: list[bytes | None] = []
    position = 0
    for _ in range(count):
        size, position = read_varint(data, position)
        end = position + size
        _, position = read_varint(data, position + 1)
        _, position = read_varint(data, position)
        key_size, position = read_varint(data, position)
        position += max(key_size, 0)
        value_size, position = read_varint(data, position)
        values.append(None if value_size < 0 else data[position : position + value_size])
        position = end
    return tuple(values)
