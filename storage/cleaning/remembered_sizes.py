"""The sizes of records, so that the second pass need not find out again where they lie: two bytes for most of them.

Only of windows in which there is nothing but records with keys, one for each offset: then a record's offset follows
from its place, and which of them stay can be told without reading them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.cleaning.record_table import Keys, Places
from tidemark.storage.cleaning.windows import Window

BYTES_MAX = 32 << 20

Sizes = NDArray[np.uint16] | NDArray[np.uint32]


class RememberedSizes:
    def __init__(self, *, bytes_max: int = BYTES_MAX) -> None:
        self._left = bytes_max
        self._known: dict[int, Sizes] = {}  # by the window's first offset

    def note(self, window: Window, places: Places, keys: Keys) -> None:
        """The records of all batches of a window."""
        sizes = places.ends - places.starts
        packed: Sizes = sizes.astype(np.uint16) if sizes.max(initial=0) <= 0xFFFF else sizes.astype(np.uint32)
        if packed.nbytes <= self._left and _is_plain(window, keys):
            self._known[int(window.base_offsets[0])] = packed
            self._left -= packed.nbytes

    def take(self, window: Window) -> Sizes | None:
        """Once: the second pass meets each window once."""
        return self._known.pop(int(window.base_offsets[0]), None)


def _is_plain(window: Window, keys: Keys) -> bool:
    counts = window.headers["record_count"].astype(np.int64)
    if not (counts == window.headers["last_offset_delta"] + np.int64(1)).all() or (keys.lengths < 0).any():
        return False
    return bool((keys.offsets == offsets_of(window, counts)).all())


def offsets_of(window: Window, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of all records, where there is one for each offset of their batches."""
    first = np.cumsum(counts) - counts
    offsets: NDArray[np.int64] = np.repeat(window.base_offsets - first, counts) + np.arange(int(counts.sum()))
    return offsets
