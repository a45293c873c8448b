"""Record batches of the coordinator's own, with as little work as can be: a commit is one record in one batch."""

from __future__ import annotations

from collections.abc import Sequence

from broker.groups.records import Fact, encode_key, encode_value
from protocol.batch import HEADER, HEADER_SIZE, MAGIC, BatchHeader
from protocol.checksum import crc32c
from protocol.record import put_varint

_new = tuple.__new__


def build(facts: Sequence[Fact], *, now_ms: int) -> tuple[bytearray, BatchHeader]:
    """One uncompressed batch, ready to be appended."""
    batch = bytearray(HEADER_SIZE)
    for delta, fact in enumerate(facts):
        _put(batch, delta, encode_key(fact.key), encode_value(fact.value, fact.version))
    last = len(facts) - 1
    header = (0, len(batch) - 12, -1, MAGIC, 0, 0, last, now_ms, now_ms, -1, -1, -1, last + 1)
    HEADER.pack_into(batch, 0, *header)
    crc = crc32c(memoryview(batch)[21:])
    batch[17:21] = crc.to_bytes(4, "big")
    return batch, _new(BatchHeader, (*header[:4], crc, *header[5:]))


def _put(out: bytearray, delta: int, key: bytes, value: bytes | None) -> None:
    body = bytearray(2)  # attributes and timestamp delta: zero
    put_varint(body, delta)
    put_varint(body, len(key))
    body += key
    if value is None:
        body.append(1)  # -1: no value
    else:
        put_varint(body, len(value))
        body += value
    body.append(0)  # no headers
    put_varint(out, len(body))
    out += body
