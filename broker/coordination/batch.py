"""Builds record batches for internal topics. Kept cheap, because most commits are one small record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemark.broker.coordination.record import CoordinatorRecord, key_prefix, value_prefix
from tidemark.protocol.batch import HEADER, HEADER_SIZE, MAGIC, BatchHeader
from tidemark.protocol.checksum import crc32c
from tidemark.protocol.record import put_varint
from tidemark.protocol.schema import codec

_new = tuple.__new__
_pack_into = HEADER.pack_into
NO_PRODUCER = (-1, -1)
TRANSACTIONAL = 0x10  # a batch header's attribute
_SHORT = 64  # a length below this is one byte as a varint

_key_writers: dict[type[Any], tuple[bytes, Callable[[Any, bytearray], None]]] = {}
_value_writers: dict[tuple[type[Any], int], tuple[bytes, Callable[[Any, bytearray], None]]] = {}


def build(
    records: Sequence[CoordinatorRecord], *, now_ms: int, producer: tuple[int, int] | None = None
) -> tuple[bytearray, BatchHeader]:
    """One uncompressed batch, ready to be appended; with a producer's id and epoch, part of its transaction."""
    batch = bytearray(HEADER_SIZE)
    for delta, record in enumerate(records):
        _put(batch, delta, record)
    count, length = len(records), len(batch) - 12
    attributes, (producer_id, epoch) = (0, NO_PRODUCER) if producer is None else (TRANSACTIONAL, producer)
    _pack_into(batch, 0, 0, length, -1, MAGIC, 0, attributes, count - 1, now_ms, now_ms, producer_id, epoch, -1, count)
    crc = crc32c(memoryview(batch)[21:])
    batch[17:21] = crc.to_bytes(4, "big")
    fields = (0, length, -1, MAGIC, crc, attributes, count - 1, now_ms, now_ms, producer_id, epoch, -1, count)
    return batch, _new(BatchHeader, fields)


def _put(out: bytearray, delta: int, record: CoordinatorRecord) -> None:
    key, value, version = record
    prefix, write = _key_writers.get(type(key)) or _key_writer(type(key))
    raw_key = bytearray(prefix)
    write(key, raw_key)
    body = bytearray(2)  # attributes and timestamp delta: zero
    _put_length(body, delta)
    _put_length(body, len(raw_key))
    body += raw_key
    if value is None:
        body.append(1)  # -1: no value
    else:
        prefix, write = _value_writers.get((type(value), version)) or _value_writer(type(value), version)
        raw_value = bytearray(prefix)
        write(value, raw_value)
        _put_length(body, len(raw_value))
        body += raw_value
    body.append(0)  # no headers
    _put_length(out, len(body))
    out += body


def _put_length(out: bytearray, length: int) -> None:
    if length < _SHORT:
        out.append(length << 1)
    else:
        put_varint(out, length)


def _key_writer(kind: type[Any]) -> tuple[bytes, Callable[[Any, bytearray], None]]:
    writer = _key_writers[kind] = (key_prefix(kind), codec(kind, 0).encode)
    return writer


def _value_writer(kind: type[Any], version: int) -> tuple[bytes, Callable[[Any, bytearray], None]]:
    writer = _value_writers[kind, version] = (value_prefix(version), codec(kind, version).encode)
    return writer
