"""The consumer embedded protocol: subscriptions and assignments as classic clients encode them.

The broker does not read these bytes, except of classic members in a consumer group. Versions after
the ones known here only ever append fields, so they are read as the newest known one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.protocol.schema import Bytes

PROTOCOL_TYPE: Final = "consumer"
NEWEST: Final = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class MalformedSubscription(ValueError):
    """The bytes are not a consumer's subscription or assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class _Reader:
    def __init__(self, data: Bytes) -> None:
        self._data = bytes(data)
        self._position = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def string(self) -> str | None:
        raw = self._take(self.int16())
        try:
            return None if raw is None else raw.decode()
        except UnicodeDecodeError:
            raise MalformedSubscription("a string is not UTF-8") from None

    def name(self) -> str:
        return self.string() or ""

    def blob(self) -> bytes | None:
        return self._take(self.int32())

    def count(self, *, smallest: int) -> int:
        """The length of an array, refused before it costs memory."""
        found = self.int32()
        if found * smallest > len(self._data) - self._position:
            raise MalformedSubscription(f"an array of {found} cannot be in {len(self._data)} bytes")
        return max(found, 0)

    def numbers(self) -> tuple[int, ...]:
        return tuple(self.int32() for _ in range(self.count(smallest=4)))

    def partitions(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple((self.name(), self.numbers()) for _ in range(self.count(smallest=6)))

    def _number(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._position)
        except struct.error:
            raise MalformedSubscription(f"it ends after {len(self._data)} bytes") from None
        self._position += form.size
        return int(value)

    def _take(self, length: int) -> bytes | None:
        if length < 0:
            return None
        end = self._position + length
        if end > len(self._data):
            raise MalformedSubscription(f"it ends after {len(self._data)} bytes")
        taken, self._position = self._data[self._position : end], end
        return taken


def read_subscription(data: Bytes) -> Subscription:
    reader = _Reader(data)
    version = reader.int16()
    if version < 0:
        raise MalformedSubscription(f"version {version}")
    topics = tuple(reader.name() for _ in range(reader.count(smallest=2)))
    reader.blob()  # the assignor's own data
    owned = reader.partitions() if version >= 1 else ()
    generation_id = reader.int32() if version >= 2 else -1
    rack_id = reader.string() if version >= 3 else None
    return Subscription(
        version=min(version, NEWEST), topics=topics, owned=owned, generation_id=generation_id, rack_id=rack_id
    )


def read_assignment(data: Bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Empty bytes are an empty assignment."""
    if not len(data):
        return ()
    reader = _Reader(data)
    if reader.int16() < 0:
        raise MalformedSubscription("a negative version")
    return reader.partitions()


def write_assignment(partitions: Mapping[str, Iterable[int]], *, version: int) -> bytes:
    out = bytearray(_INT16.pack(min(version, NEWEST)))
    out += _INT32.pack(len(partitions))
    for name, numbers in partitions.items():
        raw, listed = name.encode(), list(numbers)
        out += _INT16.pack(len(raw)) + raw + _INT32.pack(len(listed))
        out += struct.pack(f">{len(listed)}i", *listed)
    out += _INT32.pack(-1)  # no user data
    return bytes(out)
