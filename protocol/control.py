"""Control batches: the markers that end a transaction in a partition."""

from __future__ import annotations

import struct
from typing import NamedTuple

from protocol.batch import Buffer, read_header
from protocol.record import InvalidRecord, Record, build_batch, iter_records

ABORT, COMMIT = 0, 1

_key = struct.Struct(">hh")
_value = struct.Struct(">hi")


class EndTransaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


def build_end_transaction(
    marker: EndTransaction, *, timestamp: int, base_offset: int = 0, leader_epoch: int = -1
) -> bytearray:
    """The control batch that a coordinator's marker becomes in a partition's log."""
    record = Record(
        timestamp=timestamp,
        key=_key.pack(0, COMMIT if marker.commit else ABORT),
        value=_value.pack(0, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_end_transaction(batch: Buffer) -> EndTransaction | None:
    """The marker in a control batch, or None if it is a control record of another type."""
    header = read_header(batch)
    if not header.is_control:
        raise InvalidRecord("not a control batch")
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
