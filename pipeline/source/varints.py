"""Zigzag varints, many at a time: one numpy step per byte of the longest, never a Python step per value."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemark.protocol.records import InvalidRecord

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_BITS_MAX = 63  # the shift of a tenth byte, of which a 64-bit number uses one bit


class MalformedVarint(InvalidRecord):
    """A number that does not end within ten bytes, or runs past the end of the data."""


def read_varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The numbers that start at each of these positions, and the positions behind them."""
    try:
        first = data[at]
        raw = (first & 0x7F).astype(np.uint64)
        behind = at + 1
        longer = np.flatnonzero(first >= 0x80)
        shift = 7
        while longer.size:
            if shift > _BITS_MAX:
                raise MalformedVarint("a varint is longer than ten bytes")
            byte = data[behind[longer]]
            raw[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
            behind[longer] += 1
            longer = longer[byte >= 0x80]
            shift += 7
    except IndexError as error:
        raise MalformedVarint("a varint runs past the end") from error
    return (raw >> np.uint64(1)).view(np.int64) ^ -(raw & np.uint64(1)).view(np.int64), behind
