"""Which partition of an internal topic holds a key: Kafka's hash, so that Kafka's own tools find what we write."""

from __future__ import annotations

import struct
from typing import Final

_INT_MIN: Final = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, in 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, *, partitions: int) -> int:
    """Kafka's Utils.abs: the smallest int has no positive counterpart and becomes zero."""
    hashed = java_hash(group_id)
    return (0 if hashed == _INT_MIN else abs(hashed)) % partitions
