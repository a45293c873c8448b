"""Control batches: the markers that end a transaction in a partition."""

from __future__ import annotations

import struct
from typing import NamedTuple

from tidemark.protocol.batch import HEADER, HEADER_SIZE, MAGIC, Buffer, read_header
from tidemark.protocol.checksum import crc32c
from tidemark.protocol.record import InvalidRecord, iter_records

ABORT, COMMIT = 0, 1

_key = struct.Struct(">hh")
_value = struct.Struct(">hi")

# The record of a marker as we write it: 16 bytes long, no attributes, no deltas; a key of 4 bytes and a value of 6; no
# headers. Lengths are zigzag varints, hence twice as large.
_RECORD = struct.Struct(">5B hh B hi B")
_BEFORE_KEY = (2 * 16, 0, 0, 0, 2 * 4)
_BEFORE_VALUE = 2 * 6
_LENGTH = HEADER_SIZE - 12 + _RECORD.size
_ATTRIBUTES = 0x30  # transactional, control


class EndTransaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


def build_end_transaction(
    marker: EndTransaction, *, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """The control batch that a coordinator's marker becomes in a partition's log."""
    kind = COMMIT if marker.commit else ABORT
    # Its one record has a size that is known, so it is written straight: every end of a transaction needs several.
    batch = bytearray(
        HEADER.pack(
            base_offset, _LENGTH, leader_epoch, MAGIC, 0, _ATTRIBUTES, 0, timestamp, timestamp,
            marker.producer_id, marker.producer_epoch, -1, 1,
        )
    )  # fmt: skip
    batch += _RECORD.pack(*_BEFORE_KEY, 0, kind, _BEFORE_VALUE, 0, marker.coordinator_epoch, 0)
    batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
    return batch


def read_end_transaction(batch: Buffer) -> EndTransaction | None:
    """The marker in a control batch, or None if it is a control record of another type."""
    header = read_header(batch)
    if not header.is_control:
        raise InvalidRecord("not a control batch")
    if header.attributes == _ATTRIBUTES and header.batch_length == _LENGTH == len(batch) - 12:
        fields = _RECORD.unpack_from(batch, HEADER_SIZE)
        if fields[:5] == _BEFORE_KEY and fields[6] in (ABORT, COMMIT) and fields[7] == _BEFORE_VALUE:
            return EndTransaction(header.producer_id, header.producer_epoch, fields[6] == COMMIT, fields[9])
    record = next(iter_records(batch), None)
    if record is None or record.key is None or len(record.key) < 4:
        raise InvalidRecord("control record without a type")
    _, kind = _key.unpack_from(record.key)
    if kind not in (ABORT, COMMIT):
        return None
    if record.value is None or len(record.value) < 6:
        raise InvalidRecord("end-transaction marker without a coordinator epoch")
    _, coordinator_epoch = _value.unpack_from(record.value)
    return EndTransaction(header.producer_id, header.producer_epoch, kind == COMMIT, coordinator_epoch)
