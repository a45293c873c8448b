"""The last offset of every key, in a fixed amount of memory.

Keys are rows of (hash, hash, offset), in the order in which they were met; a table of slots says which row a hash is
in. So what is looked at lies together: a million keys fit into the caches of a processor, where one large table with
room for five million would not. Both are worked on by whole arrays: every probe is one numpy operation for all keys
that are still looking for their slot. Keys are told apart by 128 bits of a hash (see `key_hash`), as in Kafka.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.cleaning.job import CleaningFailed

Hashes = NDArray[np.uint64]  # two columns
Offsets = NDArray[np.int64]
Column = NDArray[np.int64]

NOT_FOUND = -1
ROW_BYTES = 24  # a hash of 16 bytes, and an offset
SLOT_BYTES = 4
_FULL = 0.75  # of the slots: beyond that it takes many probes to find one
KEY_BYTES = ROW_BYTES + SLOT_BYTES / _FULL
_CROWDED = 0.4  # of the slots: then there are to be more of them, as long as memory allows
_GROWTH = 2
_SLOTS_MIN = 4093
_HALF = np.uint64(32)


class KeyMap:
    """`put` must see offsets in rising order; the last one of a key stays."""

    def __init__(self, *, memory_bytes: int, load_factor: float, keys_max: int) -> None:
        """`keys_max`: there cannot be more keys than that, so that a small log needs a small map only."""
        self.capacity = max(min(int(memory_bytes * load_factor / KEY_BYTES), keys_max), 1)
        self.size = 0
        # Row 0 stands for a slot that is empty. Memory that was not written to yet takes no room.
        self._rows: NDArray[np.uint64] = np.empty((self.capacity + 1, 3), dtype=np.uint64)
        self._rows[0] = 0
        self._slots_max = _prime_up_to(int(self.capacity / _FULL) + 3)
        self._slots: NDArray[np.int32] = np.zeros(min(_SLOTS_MIN, self._slots_max), dtype=np.int32)

    @property
    def room(self) -> int:
        return self.capacity - self.size

    def put(self, hashes: Hashes, offsets: Offsets) -> None:
        """Notes that these keys were last seen at these offsets. There must be `room` for all of them."""
        if len(offsets) > self.room:
            raise CleaningFailed(f"{len(offsets)} keys do not fit into the {self.room} places left")
        self._grow_for(len(offsets))
        rows, values = self._rows, offsets.astype(np.uint64)
        places, steps = self._first_probe(hashes)
        while len(values):
            at = self._slots.take(places)
            is_empty = at == 0
            if is_empty.any():
                at[is_empty] = self._claim(places[is_empty], hashes[is_empty])
            found = rows.take(at, axis=0)  # four times as fast as rows[at]
            is_mine = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1])
            if is_mine.all():
                rows[at, 2] = values  # in order: the last one stays
                return
            rows[at[is_mine], 2] = values[is_mine]
            is_other = np.flatnonzero(~is_mine)
            hashes, values = hashes[is_other], values[is_other]
            places, steps = self._next_probe(places[is_other], steps[is_other])

    def _claim(self, places: Column, hashes: Hashes) -> NDArray[np.int32]:
        """Rows for keys whose slots are empty. If several claim one, the last of them has it, and all get its row."""
        claims = np.arange(1, len(places) + 1, dtype=np.int32)
        self._slots[places] = claims
        won = np.flatnonzero(self._slots[places] == claims)
        rows = np.arange(self.size + 1, self.size + 1 + len(won), dtype=np.int32)
        self._rows[rows, :2] = hashes[won]
        self._slots[places[won]] = rows
        self.size += len(won)
        return self._slots[places]

    def get(self, hashes: Hashes) -> Offsets:
        """The last offset of each key; NOT_FOUND for one that was never put."""
        result = np.full(len(hashes), NOT_FOUND, dtype=np.int64)
        waiting = np.arange(len(hashes))
        places, steps = self._first_probe(hashes)
        while len(waiting):
            at = self._slots.take(places)
            found = self._rows.take(at, axis=0)
            is_mine = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1]) & (at != 0)
            result[waiting[is_mine]] = found[is_mine, 2].astype(np.int64)
            goes_on = np.flatnonzero(~is_mine & (at != 0))
            waiting, hashes = waiting[goes_on], hashes[goes_on]
            places, steps = self._next_probe(places[goes_on], steps[goes_on])
        return result

    def newest(self, *, first: int, end: int) -> NDArray[np.bool_]:
        """Of each offset from `first` to `end`, all of which were put: whether it is the last one of its key."""
        flags = np.zeros(end - first, dtype=np.bool_)
        flags[self._rows[1 : self.size + 1, 2].astype(np.int64) - first] = True
        return flags

    def _grow_for(self, count: int) -> None:
        needed = int((self.size + count) / _CROWDED)
        if len(self._slots) >= min(needed, self._slots_max):
            return
        self._slots = np.zeros(min(_prime_up_to(_GROWTH * needed), self._slots_max), dtype=np.int32)
        rows = np.arange(1, self.size + 1, dtype=np.int32)
        places, steps = self._first_probe(self._rows[1 : self.size + 1, :2])
        while len(rows):
            is_free = self._slots[places] == 0
            self._slots[places[is_free]] = rows[is_free]
            left = np.flatnonzero(self._slots[places] != rows)
            rows = rows[left]
            places, steps = self._next_probe(places[left], steps[left])

    def _first_probe(self, hashes: Hashes) -> tuple[Column, Column]:
        """Double hashing: where to look first, and in which steps to go on. The number of slots is a prime, so that any
        step leads to all of them."""
        slots = np.uint64(len(self._slots))
        places = ((hashes[:, 0] >> _HALF) * slots) >> _HALF
        steps = (((hashes[:, 1] >> _HALF) * (slots - np.uint64(1))) >> _HALF) + np.uint64(1)
        return places.astype(np.int64), steps.astype(np.int64)

    def _next_probe(self, places: Column, steps: Column) -> tuple[Column, Column]:
        places = places + steps
        places[places >= len(self._slots)] -= len(self._slots)
        return places, steps


def _prime_up_to(number: int) -> int:
    while number > 3 and any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return max(number, 3)
