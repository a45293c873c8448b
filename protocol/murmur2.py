"""The hash by which producers choose the partition of a key: Kafka's variant of Murmur 2, 32 bits."""

from __future__ import annotations

import struct
from typing import Final

SEED: Final = 0x9747B28C
M: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Unsigned; Java's is the same 32 bits with a sign."""
    length = len(data)
    h = (SEED ^ length) & MASK
    whole = length & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = (k * M) & MASK
        k = ((k ^ (k >> 24)) * M) & MASK
        h = ((h * M) & MASK) ^ k
    if rest := data[whole:]:
        h = ((h ^ int.from_bytes(rest, "little")) * M) & MASK
    h = ((h ^ (h >> 13)) * M) & MASK
    return h ^ (h >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    """As Kafka's Java producer chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
