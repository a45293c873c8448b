"""The entries of index files, held against the batches that they were made from, in one walk over a segment.

Strict: an entry is right only if it is what an append would have written. An index has no checksum of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct

from tidemark.protocol.records import BatchHeader
from tidemark.storage.aborted import ENTRY as ABORTED
from tidemark.storage.aborted import VERSION as ABORTED_VERSION
from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.files import Files
from tidemark.storage.index import OffsetIndex, TimeIndex

Problem = tuple[str, int, str]  # path, position, what is wrong
PROBLEMS_MAX = 100

_OFFSET_ENTRY = Struct(">ii")


class _Entries:
    """A file of entries, and the first of them that no batch has confirmed."""

    def __init__(self, files: Files, path: str, entry: Struct, limit: int | None = None) -> None:
        """`limit`: how many entries are to be there; what follows them is not looked at."""
        self.path = path
        self._size = entry.size
        self._at = 0
        self.problems: list[Problem] = []
        try:
            data = files.read_all(path)
        except FileNotFoundError:
            data = b""
        if limit is not None:
            if len(data) < limit * entry.size:
                self._complain(len(data), f"the file ends here, and should not before byte {limit * entry.size}")
            data = data[: limit * entry.size]
        if left := len(data) % entry.size:
            self._complain(len(data) - left, f"{left} bytes are no whole entry")
        self._entries = list(entry.iter_unpack(_without_padding(data[: len(data) - left], entry.size)))

    def _complain(self, position: int, reason: str) -> None:
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append((self.path, position, reason))

    def _next(self) -> tuple[int, ...] | None:
        return self._entries[self._at] if self._at < len(self._entries) else None

    def _wrong(self, reason: str) -> None:
        self._complain(self._at * self._size, reason)
        self._at += 1

    def _finish(self) -> list[Problem]:
        while (entry := self._next()) is not None:
            self._wrong(f"entry {entry} is of no batch")
        return self.problems


class OffsetEntries(_Entries):
    """(last offset of a batch, relative; where the batch starts)."""

    def __init__(self, files: Files, path: str, base_offset: int, limit: int | None = None) -> None:
        super().__init__(files, path, _OFFSET_ENTRY, limit)
        self._base = base_offset

    def note(self, position: int, header: BatchHeader) -> None:
        while (entry := self._next()) is not None and entry[1] <= position:
            if entry[1] < position:
                self._wrong(f"no batch starts at byte {entry[1]}")
            elif entry[0] != header.last_offset - self._base:
                told = self._base + entry[0]
                self._wrong(f"the batch at byte {position} ends at offset {header.last_offset}, not {told}")
            else:
                self._at += 1

    def finish(self) -> list[Problem]:
        return self._finish()


class TimeEntries(_Entries):
    """(largest timestamp so far; last offset of the first batch that has it, relative)."""

    def __init__(self, files: Files, path: str, base_offset: int, limit: int | None = None) -> None:
        super().__init__(files, path, TimeIndex.ENTRY, limit)
        self._base = base_offset
        self._largest = (-1, -1)

    def note(self, header: BatchHeader) -> None:
        if header.max_timestamp > self._largest[0]:
            self._largest = header.max_timestamp, header.last_offset - self._base
        relative = header.last_offset - self._base
        while (entry := self._next()) is not None and entry[1] <= relative:
            if entry != self._largest:
                self._wrong(f"time {entry[0]} at offset {self._base + entry[1]} is of no batch")
            else:
                self._at += 1

    def finish(self, *, is_sealed: bool) -> list[Problem]:
        """A sealed segment's last entry tells retention how old it is."""
        self._finish()
        last = self._entries[-1] if self._entries else None
        if is_sealed and self._largest[0] >= 0 and last != self._largest and not self.problems:
            self._complain(len(self._entries) * self._size, f"the largest timestamp, {self._largest[0]}, is missing")
        return self.problems


class AbortedEntries:
    """(version, producer id, first offset, last offset, last stable offset) of aborted transactions."""

    def __init__(self, files: Files, path: str) -> None:
        self._file = _Entries(files, path, ABORTED)

    def problems(
        self, expected: Sequence[AbortedTransaction] | None, *, first: int, end: int, is_live: bool = False
    ) -> list[Problem]:
        """`expected` is what the markers say; None if that cannot be told, since records are missing. `is_live`: there
        may be more in the file by now, of later markers."""
        found = self._file
        if expected is None:
            found.problems += self._implausible(first=first, end=end, is_live=is_live)
            return found.problems
        wanted = iter(expected)
        while (entry := found._next()) is not None:
            told = next(wanted, None)
            if told is None and is_live:
                break
            if told is None or entry != (ABORTED_VERSION, *told):
                found._wrong(f"entry {entry} is of no aborted transaction")
            else:
                found._at += 1
        if (missing := next(wanted, None)) is not None:
            found._complain(found._at * ABORTED.size, f"the abort at offset {missing.last_offset} is missing")
        return found.problems

    def _implausible(self, *, first: int, end: int, is_live: bool) -> Iterator[Problem]:
        for at, (version, producer_id, begin, last, stable) in enumerate(self._file._entries):
            fits = first <= last and (last < end or is_live) and 0 <= begin <= last and producer_id >= 0 and stable >= 0
            if version != ABORTED_VERSION or not fits:
                yield self._file.path, at * ABORTED.size, "this is no aborted transaction of the segment"


def _without_padding(data: bytes, size: int) -> bytes:
    """Kafka makes the indexes of the segment that it writes to larger than they are, with zeros; after a kill they
    stay so. No entry is all zeros."""
    used = len(data.rstrip(b"\0"))
    return data[: used + -used % size]


assert _OFFSET_ENTRY.size == OffsetIndex.ENTRY_SIZE
