"""The hash by which producers choose the partition of a key: Kafka's variant of Murmur 2, 32 bits."""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Final

SEED: Final = 0x9747B28C
M: Final = 0x5BD1E995
MASK: Final = 0xFFFFFFFF
SLICE_BYTES: Final = 4096  # of a long key


def murmur2(data: bytes) -> int:
    """Unsigned; Java's is the same 32 bits with a sign."""
    whole = len(data) & ~3
    return _ended(_mixed((SEED ^ len(data)) & MASK, data[:whole]), data[whole:])


def murmur2_in_slices(data: bytes) -> Generator[None, None, int]:
    """As `murmur2`, with pauses: a megabyte takes 100 ms."""
    whole = len(data) & ~3
    h = (SEED ^ len(data)) & MASK
    for start in range(0, whole, SLICE_BYTES):
        h = _mixed(h, data[start : min(start + SLICE_BYTES, whole)])
        yield
    return _ended(h, data[whole:])


def _mixed(h: int, data: bytes) -> int:
    for (k,) in struct.iter_unpack("<I", data):
        k = (k * M) & MASK
        k = ((k ^ (k >> 24)) * M) & MASK
        h = ((h * M) & MASK) ^ k
    return h


def _ended(h: int, rest: bytes) -> int:
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * M) & MASK
    h = ((h ^ (h >> 13)) * M) & MASK
    return h ^ (h >> 15)


def partition_of_key(key: bytes, partitions: int) -> int:
    """As Kafka's Java producer chooses it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition_of_key_in_slices(key: bytes, partitions: int) -> Generator[None, None, int]:
    return ((yield from murmur2_in_slices(key)) & 0x7FFFFFFF) % partitions
