"""The frame around a registry's value: a zero, the schema's id in four bytes, and for Protobuf which message it is."""

from __future__ import annotations

MAGIC = 0
HEADER_BYTES = 5


class Unframed(ValueError):
    """The bytes are not framed, or a frame is broken."""


def split(framed: bytes) -> tuple[int, bytes]:
    """The schema's id, and what follows."""
    if len(framed) < HEADER_BYTES or framed[0] != MAGIC:
        raise Unframed("it is not framed as a registry's (a zero, then four bytes of a schema's id)")
    return int.from_bytes(framed[1:HEADER_BYTES], "big"), framed[HEADER_BYTES:]


def header(number: int) -> bytes:
    return bytes([MAGIC]) + number.to_bytes(4, "big")


def split_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Which message of the file it is, by its place at each level, and the message. A single zero means the first."""
    count, at = _zigzag(payload, 0)
    if count == 0:
        return (0,), payload[at:]
    if not 0 < count <= len(payload):
        raise Unframed("it does not say which message it is")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(payload, at)
        indexes.append(index)
    return tuple(indexes), payload[at:]


FIRST_MESSAGE = b"\x00"


def _zigzag(payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(payload) and shift < 64:
        byte = payload[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise Unframed("it ends within a number")
