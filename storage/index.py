"""Sparse indexes: from an offset to a file position, and from a time to an offset.

On disk these are Kafka's: big-endian entries, one after another. In memory they are native arrays, so that a search is
one call of `bisect`. An index can be rebuilt from its log, so a damaged file is a reason to rebuild, never to fail.

To be added to, an index need not be read: its last entry will do. `skipped` counts the entries before those in memory;
until they are read and checked (`decode`), only `last`, appends and `encode` of what is in memory may be asked for.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from operator import lt
from struct import Struct

from tidemark.storage.files import Files

_SWAP = sys.byteorder == "little"
MAX_RELATIVE_OFFSET = 0x7FFFFFFF


def _rises(values: array[int]) -> bool:
    return all(map(lt, values, values[1:]))


def _end_of_file(files: Files, path: str, entry_size: int) -> tuple[int, bytes]:
    """How many entries an index file has, and the last; none where it is missing or torn."""
    try:
        return files.size(path) // entry_size, files.read_tail(path, entry_size)
    except FileNotFoundError:
        return 0, b""


class OffsetIndex:
    """Entries (last offset of a batch, position where that batch starts), each greater than the one before."""

    ENTRY_SIZE = 8
    __slots__ = ("_base", "_offsets", "_positions", "skipped")

    def __init__(self, base_offset: int, *, skipped: int = 0) -> None:
        self._base = base_offset
        self.skipped = skipped
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return self.skipped + len(self._offsets)

    def copy(self) -> OffsetIndex:
        copy = OffsetIndex(self._base, skipped=self.skipped)
        copy._offsets, copy._positions = self._offsets[:], self._positions[:]
        return copy

    def append(self, *, offset: int, position: int) -> None:
        assert not self._offsets or offset - self._base > self._offsets[-1], f"offset {offset} after {self.last()}"
        self._offsets.append(offset - self._base)
        self._positions.append(position)

    def last(self) -> tuple[int, int] | None:
        if not self._offsets:
            return None
        return self._base + self._offsets[-1], self._positions[-1]

    def floor(self, offset: int) -> tuple[int, int] | None:
        """The last entry (offset, position) at or before `offset`: no batch that ends before it need be looked at."""
        at = bisect_right(self._offsets, min(offset - self._base, MAX_RELATIVE_OFFSET)) - 1
        return None if at < 0 else (self._base + self._offsets[at], self._positions[at])

    def last_up_to(self, position: int) -> tuple[int, int] | None:
        """The last entry (offset, position) of a batch that starts at or before `position`."""
        at = bisect_right(self._positions, position) - 1
        return None if at < 0 else (self._base + self._offsets[at], self._positions[at])

    def keep_before(self, *, offset: int, position: int) -> None:
        """Drops entries of batches that end at or past `offset`, or start at or past `position`."""
        assert not self.skipped
        count = len(self._offsets)
        while count and (self._base + self._offsets[count - 1] >= offset or self._positions[count - 1] >= position):
            count -= 1
        del self._offsets[count:]
        del self._positions[count:]

    def take_over(self, later: OffsetIndex) -> None:
        """Adds the other's entries that lie behind these. (All of these are in memory, and the other's last.)"""
        at = bisect_right(later._offsets, self._offsets[-1]) if self._offsets else 0
        self._offsets.extend(later._offsets[at:])
        self._positions.extend(later._positions[at:])

    def encode(self, *, first: int = 0) -> bytes:
        first -= self.skipped
        assert first >= 0, "these entries were not read"
        entries = array("i", bytes(self.ENTRY_SIZE * (len(self._offsets) - first)))
        entries[0::2] = self._offsets[first:]
        entries[1::2] = self._positions[first:]
        if _SWAP:
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def end_of_file(cls, files: Files, path: str, *, base_offset: int, log_size: int) -> OffsetIndex | None:
        """The index with its last entry only; None when the file must be read whole to be believed."""
        count, end = _end_of_file(files, path, cls.ENTRY_SIZE)
        index = cls.decode(end, base_offset=base_offset, log_size=log_size)
        if not index or index._offsets[0] < count - 1:  # less than rising by one each
            return None
        index.skipped = count - 1
        return index

    @classmethod
    def decode(cls, data: bytes, *, base_offset: int, log_size: int) -> OffsetIndex | None:
        """Reads an index file; None when it cannot belong to a log of `log_size` bytes and must be rebuilt."""
        if len(data) % cls.ENTRY_SIZE:
            return None
        entries = array("i", data)
        if _SWAP:
            entries.byteswap()
        index = cls(base_offset)
        index._offsets, index._positions = entries[0::2], entries[1::2]
        if not entries:
            return index
        sane = index._offsets[0] >= 0 and index._positions[0] >= 0 and index._positions[-1] < log_size
        return index if sane and _rises(index._offsets) and _rises(index._positions) else None


class TimeIndex:
    """Entries (largest timestamp so far, last offset of the batch that holds it); both rise."""

    ENTRY_SIZE = 12
    ENTRY = Struct(">qi")
    __slots__ = ("_base", "_offsets", "_timestamps", "skipped")

    def __init__(self, base_offset: int, *, skipped: int = 0) -> None:
        self._base = base_offset
        self.skipped = skipped
        self._timestamps = array("q")
        self._offsets = array("i")

    def __len__(self) -> int:
        return self.skipped + len(self._offsets)

    def copy(self) -> TimeIndex:
        copy = TimeIndex(self._base, skipped=self.skipped)
        copy._timestamps, copy._offsets = self._timestamps[:], self._offsets[:]
        return copy

    def append_if_later(self, *, timestamp: int, offset: int) -> None:
        """Adds an entry when time has moved on. Batches without a timestamp (-1) never make one."""
        if timestamp > (self._timestamps[-1] if self._timestamps else -1):
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self._base)

    def last(self) -> tuple[int, int] | None:
        if not self._offsets:
            return None
        return self._timestamps[-1], self._base + self._offsets[-1]

    def floor(self, timestamp: int) -> int:
        """An offset before which no batch is later than `timestamp`."""
        at = bisect_right(self._timestamps, timestamp) - 1
        return self._base if at < 0 else self._base + self._offsets[at]

    def keep_before(self, *, offset: int) -> None:
        assert not self.skipped
        count = len(self._offsets)
        while count and self._base + self._offsets[count - 1] >= offset:
            count -= 1
        del self._offsets[count:]
        del self._timestamps[count:]

    def take_over(self, later: TimeIndex) -> None:
        """As `OffsetIndex.take_over`."""
        at = bisect_right(later._timestamps, self._timestamps[-1]) if self._timestamps else 0
        self._timestamps.extend(later._timestamps[at:])
        self._offsets.extend(later._offsets[at:])

    def encode(self, *, first: int = 0) -> bytes:
        first -= self.skipped
        assert first >= 0, "these entries were not read"
        pack = self.ENTRY.pack
        return b"".join(map(pack, self._timestamps[first:], self._offsets[first:]))

    @classmethod
    def last_in_file(cls, files: Files, path: str, *, base_offset: int) -> tuple[int, int] | None:
        """The last entry of an index file, without reading the others; None when that would not be reliable. (Of one
        that ends in zeros, as a power cut may leave it, or Kafka, it would tell retention that all is very old.)"""
        index = cls.end_of_file(files, path, base_offset=base_offset)
        return None if index is None else index.last()

    @classmethod
    def end_of_file(cls, files: Files, path: str, *, base_offset: int) -> TimeIndex | None:
        """As `OffsetIndex.end_of_file`."""
        count, end = _end_of_file(files, path, cls.ENTRY_SIZE)
        index = cls.decode(end, base_offset=base_offset)
        if not index or index._offsets[0] < count - 1:  # less than rising by one each
            return None
        index.skipped = count - 1
        return index

    @classmethod
    def decode(cls, data: bytes, *, base_offset: int) -> TimeIndex | None:
        """Reads an index file; None when it is damaged and must be rebuilt."""
        if len(data) % cls.ENTRY_SIZE:
            return None
        words = array("i", data)  # three of them for each entry: a timestamp has two
        if _SWAP:
            words.byteswap()
        halves = array("i", bytes(8 * (len(words) // 3)))
        halves[0::2], halves[1::2] = (words[1::3], words[0::3]) if _SWAP else (words[0::3], words[1::3])
        index = cls(base_offset)
        index._timestamps, index._offsets = array("q", halves.tobytes()), words[2::3]
        if not data:
            return index
        sane = index._timestamps[0] >= 0 and index._offsets[0] >= 0
        return index if sane and _rises(index._timestamps) and _rises(index._offsets) else None
