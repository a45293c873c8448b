"""The index of aborted transactions (.txnindex): what a read_committed reader must skip.

A segment has the file only when a transaction was aborted by a marker in that segment. Entries are in the order of
their markers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from tidemark.storage.files import Files

ENTRY = Struct(">hqqqq")
VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # when the marker was written: later entries cannot begin before it


class AbortedIndex:
    """Remembers what it has read, as every fetch of a read_committed consumer asks."""

    __slots__ = ("_files", "_known", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._known: list[AbortedTransaction] | None = None

    def append(self, transaction: AbortedTransaction) -> None:
        try:
            self._files.append_to(self._path, ENTRY.pack(VERSION, *transaction))
        except OSError:
            self._known = None
            raise
        if self._known is not None:
            self._known.append(transaction)

    @property
    def is_loaded(self) -> bool:
        return self._known is not None

    def entries(self) -> list[AbortedTransaction]:
        """Whole entries; a torn last one is left out (recovery rebuilds the file from the log)."""
        if self._known is None:
            self._known = list(self._read())
        return self._known

    def _read(self) -> Iterator[AbortedTransaction]:
        try:
            data = self._files.read_all(self._path)
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % ENTRY.size
        for version, *fields in ENTRY.iter_unpack(memoryview(data)[:whole]):
            if version == VERSION:
                yield AbortedTransaction(*fields)

    def collect(self, *, first: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions that touch offsets first..end-1, and whether later segments need not be asked."""
        found = []
        entries = self.entries()
        for at in range(bisect_left(entries, first, key=_last_offset), len(entries)):
            entry = entries[at]
            if entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False

    def keep_before(self, offset: int) -> None:
        """Drops transactions whose marker is at or past `offset`."""
        for kept, entry in enumerate(self.entries()):
            if entry.last_offset >= offset:
                self._known = None
                self._files.truncate_file(self._path, kept * ENTRY.size)
                return

    def reset(self) -> None:
        self._known = None
        self._files.remove(self._path)


def _last_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset
