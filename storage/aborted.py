"""The index of aborted transactions (.txnindex): what a read_committed reader must skip.

A segment has the file only when a transaction was aborted by a marker in that segment. Entries are in the order of
their markers.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from storage.files import Files

_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # when the marker was written: later entries cannot begin before it


class AbortedIndex:
    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def append(self, transaction: AbortedTransaction) -> None:
        self._files.append_to(self._path, _ENTRY.pack(_VERSION, *transaction))

    def entries(self) -> Iterator[AbortedTransaction]:
        """Whole entries; a torn last one is left out (recovery rebuilds the file from the log)."""
        try:
            data = self._files.read_all(self._path)
        except FileNotFoundError:
            return
        whole = len(data) - len(data) % _ENTRY.size
        for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole]):
            if version == _VERSION:
                yield AbortedTransaction(*fields)

    def collect(self, *, first: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """Aborted transactions that touch offsets first..end-1, and whether later segments need not be asked."""
        found = []
        for entry in self.entries():
            if entry.last_offset >= first and entry.first_offset < end:
                found.append(entry)
            if entry.last_stable_offset >= end:
                return found, True
        return found, False

    def keep_before(self, offset: int) -> None:
        """Drops transactions whose marker is at or past `offset`."""
        for kept, entry in enumerate(self.entries()):
            if entry.last_offset >= offset:
                self._files.truncate_file(self._path, kept * _ENTRY.size)
                return

    def reset(self) -> None:
        self._files.remove(self._path)
