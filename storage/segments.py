"""The row of segments that make up a log, oldest first. The last is active: appends go there."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from tidemark.storage.cache import SegmentCache
from tidemark.storage.segment import Segment


class Segments:
    __slots__ = ("_bases", "_cache", "_inactive_bytes", "_row", "active")

    def __init__(self, row: Sequence[Segment], cache: SegmentCache) -> None:
        self._cache = cache
        self._row = list(row)
        self._bases = [segment.base_offset for segment in row]
        self._inactive_bytes = sum(segment.size for segment in row[:-1])
        self.active = row[-1]

    def __len__(self) -> int:
        return len(self._row)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._row)

    @property
    def size_bytes(self) -> int:
        return self._inactive_bytes + self.active.size

    def end_of(self, at: int, log_end: int) -> int:
        """Where the segment with this number ends: where the next begins, or the log does."""
        return self._bases[at + 1] if at + 1 < len(self._bases) else log_end

    @property
    def first_offset(self) -> int:
        return self._bases[0]

    def starting_with(self, offset: int) -> Iterator[tuple[Segment, int | None]]:
        """The segment that holds `offset` and those after it, each with the base of its successor. Inactive ones are
        counted as being read, so that the cache keeps them open."""
        for at in range(max(bisect_right(self._bases, offset) - 1, 0), len(self._row)):
            segment = self._row[at]
            if segment is self.active:
                yield segment, None
                return
            self._cache.touch(segment)
            yield segment, self._bases[at + 1]

    def from_offset(self, offset: int) -> Iterator[Segment]:
        return iter(self._row[max(bisect_right(self._bases, offset) - 1, 0) :])

    def append(self, segment: Segment) -> None:
        """Adds a new active segment. An empty predecessor with the same base offset makes room for it."""
        old = self.active
        if old.base_offset == segment.base_offset:
            self._row.pop()
            self._bases.pop()
        else:
            self._inactive_bytes += old.size
            self._cache.touch(old)
        self._row.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def remove_first(self) -> Segment:
        """Takes out the oldest segment, which must not be the active one."""
        assert len(self._row) > 1, "the active segment stays"
        segment = self._row.pop(0)
        self._bases.pop(0)
        self._inactive_bytes -= segment.size
        self._cache.discard(segment)
        return segment

    def remove_active(self) -> Segment:
        """Takes out the newest segment; the one before it becomes active."""
        assert len(self._row) > 1, "a log has a segment"
        segment = self._row.pop()
        self._bases.pop()
        self.active = self._row[-1]
        self._inactive_bytes -= self.active.size
        self._cache.discard(self.active)
        return segment

    def consecutive(self, bases: Sequence[int]) -> list[Segment] | None:
        """The segments of these base offsets, if they follow each other."""
        first = bisect_right(self._bases, bases[0]) - 1
        found = slice(max(first, 0), max(first, 0) + len(bases))
        return self._row[found] if self._bases[found] == list(bases) else None

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts one segment in the place of several that follow each other, none of them active."""
        first = self._row.index(old[0])
        self._row[first : first + len(old)] = [new]
        self._bases[first : first + len(old)] = [new.base_offset]
        self._inactive_bytes += new.size - sum(segment.size for segment in old)
        for segment in old:
            self._cache.discard(segment)

    def replace_all(self, segment: Segment) -> None:
        for old in self._row:
            self._cache.discard(old)
        self._row = [segment]
        self._bases = [segment.base_offset]
        self._inactive_bytes = 0
        self.active = segment

    def close(self) -> None:
        for segment in self._row:
            self._cache.discard(segment)
            segment.release()
            # What another thread still loads for a reader must not be saved: another log may have this path by then.
            segment.indexes.disown_files()
