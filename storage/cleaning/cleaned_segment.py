"""A segment in the making: log, indexes and index of aborted transactions under `.cleaned` names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Final

from tidemark.protocol.records import Buffer
from tidemark.storage import names
from tidemark.storage.aborted import AbortedIndex, AbortedTransaction
from tidemark.storage.cleaning.job import CleanedGroup
from tidemark.storage.files import Files
from tidemark.storage.index import OffsetIndex, TimeIndex

WRITEBACK_BYTES: Final = 4 << 20


class CleanedSegment:
    def __init__(
        self, files: Files, directory: str, base_offset: int, *, index_interval_bytes: int, paced: Callable[[int], None]
    ) -> None:
        self._files = files
        self._stem = os.path.join(directory, names.file_name(base_offset, ""))
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        self._paced = paced
        self._offsets = OffsetIndex(base_offset)
        self._times = TimeIndex(base_offset)
        self._largest: tuple[int, int] = -1, base_offset  # timestamp, and the last offset of its batch
        self._since_entry = 0
        self._aborts = AbortedIndex(files, self.path(names.ABORTED_INDEX))
        self._has_aborts = False
        self.size = 0
        self._handed_over = 0  # bytes that the kernel was told to write to the disk
        for suffix in names.SEGMENT_SUFFIXES:
            files.remove(self.path(suffix))  # an earlier attempt's
        self._file = files.open_data(self.path(names.LOG), create=True)

    def path(self, suffix: str) -> str:
        return self._stem + suffix + names.CLEANED

    def add(self, data: Buffer, batches: Sequence[tuple[int, int, int]]) -> None:
        """Appends batches, of each of which size, last offset and largest timestamp are told."""
        position, since_entry, interval = self.size, self._since_entry, self._interval
        largest, largest_offset = self._largest
        for size, last_offset, timestamp in batches:
            if timestamp > largest:
                largest, largest_offset = timestamp, last_offset
            if since_entry > interval:
                self._offsets.append(offset=last_offset, position=position)
                self._times.append_if_later(timestamp=largest, offset=largest_offset)
                since_entry = 0
            since_entry += size
            position += size
        assert position == self.size + len(data), f"{len(data)} bytes, not {position - self.size}"
        self._largest, self._since_entry, self.size = (largest, largest_offset), since_entry, position
        if batches:
            self._files.write_all(self._file.fileno(), data)
            self._start_writeback()
            self._paced(len(data))

    def _start_writeback(self) -> None:
        """Or the sync at the end would hand 64 MB to the disk at once, and others would wait behind them."""
        waiting = self.size - self._handed_over
        if waiting >= WRITEBACK_BYTES:
            self._files.start_writeback(self._file.fileno(), position=self._handed_over, length=waiting)
            self._handed_over = self.size

    def add_abort(self, aborted: AbortedTransaction) -> None:
        self._aborts.append(aborted)
        self._has_aborts = True

    def finish(self, *, generation: int, replaced: tuple[int, ...], modified_ms: int) -> CleanedGroup:
        """Everything on disk, for good."""
        self._times.append_if_later(timestamp=self._largest[0], offset=self._largest[1])
        self._files.fdatasync(self._file.fileno())
        self._file.close()
        self._files.overwrite(self.path(names.OFFSET_INDEX), self._offsets.encode())
        self._files.overwrite(self.path(names.TIME_INDEX), self._times.encode())
        suffixes = (names.OFFSET_INDEX, names.TIME_INDEX) + ((names.ABORTED_INDEX,) if self._has_aborts else ())
        for suffix in suffixes:
            self._files.sync_file(self.path(suffix))
        self._files.set_modified(
            self.path(names.LOG), modified_ms
        )  # retention of batches without timestamps asks for it
        return CleanedGroup(
            generation=generation,
            base_offset=self._base_offset,
            replaced=replaced,
            size=self.size,
            has_aborts=self._has_aborts,
        )

    def discard(self) -> None:
        self._file.close()
        for suffix in names.SEGMENT_SUFFIXES:
            self._files.remove(self.path(suffix))
