"""The last offset of every key, in a fixed amount of memory: 24 bytes for each of as many slots as fit.

A hash table with open addressing, worked on by whole arrays: every probe is one numpy operation for all keys that are
still looking for their slot. Keys are told apart by 128 bits of a hash (see `key_hash`), as in Kafka.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidemark.storage.cleaning.job import ENTRY_BYTES, CleaningFailed

Hashes = NDArray[np.uint64]  # two columns
Offsets = NDArray[np.int64]

NOT_FOUND = -1
_ROOM = 2  # slots per key, where memory allows: few probes


class KeyMap:
    """`put` must see offsets in rising order; the last one of a key stays."""

    def __init__(self, *, memory_bytes: int, load_factor: float, keys_max: int) -> None:
        """`keys_max`: there cannot be more keys than that, so that a small log needs a small map only."""
        slots_max = max(memory_bytes // ENTRY_BYTES, 3)
        self._slots = _prime_up_to(min(slots_max, max(_ROOM * keys_max, 64)))
        self.capacity = max(int(self._slots * load_factor), 1)
        # Rows of (hash, hash, offset + 1): one slot is one cache line or two, and 0 marks an empty one.
        self._table: NDArray[np.uint64] = np.zeros((self._slots, 3), dtype=np.uint64)
        self.size = 0

    @property
    def room(self) -> int:
        return self.capacity - self.size

    def put(self, hashes: Hashes, offsets: Offsets) -> None:
        """Notes that these keys were last seen at these offsets. There must be `room` for all of them."""
        if len(offsets) > self.room:
            raise CleaningFailed(f"{len(offsets)} keys do not fit into the {self.room} places left")
        table = self._table
        rows = np.column_stack((hashes, (offsets + 1).astype(np.uint64)))
        places, steps = self._first_probe(hashes)
        while len(rows):
            found = table[places]
            is_empty = found[:, 2] == 0
            if is_empty.any():
                claimed, claims = places[is_empty], rows[is_empty]
                table[claimed] = claims  # where several keys claim a slot, the last of them has it
                found[is_empty] = now = table[claimed]
                self.size += int(np.count_nonzero(now[:, 2] == claims[:, 2]))
            is_mine = (found[:, 0] == rows[:, 0]) & (found[:, 1] == rows[:, 1])
            table[places[is_mine], 2] = rows[is_mine, 2]  # in order: the last one stays
            is_other = ~is_mine
            rows, steps = rows[is_other], steps[is_other]
            places = (places[is_other] + steps) % self._slots

    def get(self, hashes: Hashes) -> Offsets:
        """The last offset of each key; NOT_FOUND for one that was never put."""
        result = np.full(len(hashes), NOT_FOUND, dtype=np.int64)
        waiting = np.arange(len(hashes))
        places, steps = self._first_probe(hashes)
        while len(waiting):
            found = self._table[places]
            is_mine = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1]) & (found[:, 2] != 0)
            result[waiting[is_mine]] = found[is_mine, 2].astype(np.int64) - 1
            goes_on = ~is_mine & (found[:, 2] != 0)
            waiting, hashes, steps = waiting[goes_on], hashes[goes_on], steps[goes_on]
            places = (places[goes_on] + steps) % self._slots
        return result

    def newest(self, *, first: int, end: int) -> NDArray[np.bool_]:
        """Of each offset from `first` to `end`, all of which were put: whether it is the last one of its key."""
        offsets = self._table[:, 2]
        flags = np.zeros(end - first, dtype=np.bool_)
        flags[offsets[offsets != 0].astype(np.int64) - (first + 1)] = True
        return flags

    def _first_probe(self, hashes: Hashes) -> tuple[NDArray[Any], NDArray[Any]]:
        """Double hashing: where to look first, and in which steps to go on. The number of slots is a prime, so that any
        step leads to all of them."""
        slots = np.uint64(self._slots)
        places = (hashes[:, 0] % slots).astype(np.int64)
        steps = (hashes[:, 1] % (slots - np.uint64(1))).astype(np.int64) + 1
        return places, steps


def _prime_up_to(number: int) -> int:
    while number > 3 and any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return max(number, 3)
