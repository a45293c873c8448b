"""Which partition of an internal topic holds a key: Kafka's hash, so that Kafka's own tools find what we write."""

from __future__ import annotations

import struct
from operator import mul
from typing import Final

_INT_MIN: Final = -(1 << 31)
_POWERS: Final = tuple(pow(31, exponent, 1 << 32) for exponent in reversed(range(256)))


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, in 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for start in range(0, len(units), 2 * len(_POWERS)):
        part = units[start : start + 2 * len(_POWERS)]
        count = len(part) // 2
        # The powers end with 31⁰: the last `count` of them belong to the last `count` units.
        value = value * 31**count + sum(map(mul, struct.unpack(f">{count}H", part), _POWERS[-count:]))
        value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, *, partitions: int) -> int:
    """Kafka's Utils.abs: the smallest int has no positive counterpart and becomes zero."""
    hashed = java_hash(group_id)
    return (0 if hashed == _INT_MIN else abs(hashed)) % partitions
