"""Kafka's variable-length integers, where the generated code does not inline them."""

from __future__ import annotations

from typing import Final

from tidemark.protocol.schema import DecodeError


def read_uvarint(buf: bytearray | memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits at `pos`, and the position after it."""
    result = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result > 0xFFFFFFFF:
                raise DecodeError(f"varint before byte {pos} exceeds 32 bits")
            return result, pos
        shift += 7
        if shift > 28:
            raise DecodeError(f"varint before byte {pos} is longer than five bytes")


def put_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# As Kafka 4.4: a request with more tagged fields than that is no request of ours.
TAGS_MAX: Final = 10_000


def skip_tags(buf: memoryview, pos: int) -> int:
    """The position after a section of tagged fields of which none is known."""
    return skip_counted_tags(buf, pos, TAGS_MAX)[0]


def skip_counted_tags(buf: memoryview, pos: int, tags_left: int) -> tuple[int, int]:
    """As `skip_tags`, where a whole message may have `tags_left`; and how many it may have after this section."""
    count, pos = read_uvarint(buf, pos)
    if count > tags_left:
        raise DecodeError(f"more than {TAGS_MAX} tagged fields")
    previous = -1
    for _ in range(count):
        tag, pos = read_uvarint(buf, pos)
        if tag <= previous:
            raise DecodeError(f"tag {tag} after tag {previous}")
        previous = tag
        size, pos = read_uvarint(buf, pos)
        if size > len(buf) - pos:
            raise DecodeError(f"tagged field of {size} bytes with {len(buf) - pos} left")
        pos += size
    return pos, tags_left - count
