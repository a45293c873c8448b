"""The last offset of every key, in a fixed amount of memory.

Keys are rows of (hash, hash, offset), in the order in which they were met; a table of slots says which row a hash is
in. So what is looked at lies together: a million keys fit into the caches of a processor, where one large table with
room for five million would not. Both are worked on by whole arrays: every probe is one numpy operation for all keys
that are still looking for their slot. With rows, `take` is many times as fast as an index in brackets, and flags are
slower than numbers. Keys are told apart by 128 bits of a hash (see `key_hash`), as in Kafka.
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
        # A row's offset lies beside its hash: the third column has a name of its own, to be indexed by one number.
        self._rows: NDArray[np.uint64] = np.empty((self.capacity + 1, 3), dtype=np.uint64)
        self._rows[0] = 0
        self._offsets: NDArray[np.int64] = self._rows.view(np.int64)[:, 2]
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
        places, steps = self._first_probe(hashes)
        while len(offsets):
            at = self._slots.take(places)
            empty = np.flatnonzero(at == 0)
            if len(empty):
                at[empty] = self._claim(places.take(empty), hashes.take(empty, axis=0))
            found = self._rows.take(at, axis=0)
            is_mine = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1])
            if is_mine.all():
                self._offsets[at] = offsets  # in order: the last one stays
                return
            mine, others = np.flatnonzero(is_mine), np.flatnonzero(~is_mine)
            self._offsets[at.take(mine)] = offsets.take(mine)
            hashes, offsets = hashes.take(others, axis=0), offsets.take(others)
            places, steps = self._next_probe(places.take(others), steps.take(others))

    def _claim(self, places: Column, hashes: Hashes) -> NDArray[np.int32]:
        """Rows for keys whose slots are empty. If several claim one, the last of them has it, and all get its row."""
        claims = np.arange(1, len(places) + 1, dtype=np.int32)
        self._slots[places] = claims
        won = np.flatnonzero(self._slots.take(places) == claims)
        first, end = self.size + 1, self.size + 1 + len(won)
        self._rows[first:end, :2] = hashes.take(won, axis=0)
        self._slots[places.take(won)] = np.arange(first, end, dtype=np.int32)
        self.size += len(won)
        return self._slots.take(places)

    def get(self, hashes: Hashes) -> Offsets:
        """The last offset of each key; NOT_FOUND for one that was never put."""
        result = np.full(len(hashes), NOT_FOUND, dtype=np.int64)
        waiting = np.arange(len(hashes))
        places, steps = self._first_probe(hashes)
        while len(waiting):
            at = self._slots.take(places)
            found = self._rows.take(at, axis=0)
            is_mine = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1]) & (at != 0)
            mine, others = np.flatnonzero(is_mine), np.flatnonzero(~is_mine & (at != 0))
            result[waiting.take(mine)] = self._offsets.take(at.take(mine))
            waiting, hashes = waiting.take(others), hashes.take(others, axis=0)
            places, steps = self._next_probe(places.take(others), steps.take(others))
        return result

    def newest(self, *, first: int, end: int) -> NDArray[np.bool_]:
        """Of each offset from `first` to `end`, all of which were put: whether it is the last one of its key."""
        flags = np.zeros(end - first, dtype=np.bool_)
        flags[self._offsets[1 : self.size + 1] - first] = True
        return flags

    def _grow_for(self, count: int) -> None:
        needed = int((self.size + count) / _CROWDED)
        if len(self._slots) >= min(needed, self._slots_max):
            return
        self._slots = np.zeros(min(_prime_up_to(_GROWTH * needed), self._slots_max), dtype=np.int32)
        rows = np.arange(1, self.size + 1, dtype=np.int32)
        places, steps = self._first_probe(self._rows[1 : self.size + 1, :2])
        while len(rows):
            free = np.flatnonzero(self._slots.take(places) == 0)
            self._slots[places.take(free)] = rows.take(free)
            left = np.flatnonzero(self._slots.take(places) != rows)
            rows = rows.take(left)
            places, steps = self._next_probe(places.take(left), steps.take(left))

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
