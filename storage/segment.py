"""One segment: a .log file, its indexes, and what is known about its contents.

Only the active segment, the last, is written to. Its indexes live in memory and are appended to their files now and
then: a crash in between costs nothing, as recovery rebuilds them. (After a clean stop only their ends are in memory,
until something is looked up.) An inactive segment holds no file and no index until it is read, and lets go of both
when the log's cache says so.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress

from tidemark.protocol.records import HEADER_SIZE
from tidemark.storage import names
from tidemark.storage.aborted import AbortedIndex, AbortedTransaction
from tidemark.storage.cold import ColdSegment
from tidemark.storage.errors import CorruptLog, LogOffline, TooManyOpenFiles, WriteFailed
from tidemark.storage.files import Buffer, Files, OpenFile, Reservation
from tidemark.storage.index import OffsetIndex, TimeIndex
from tidemark.storage.indexes import Indexes, IndexSave
from tidemark.storage.scan import LENGTH_END, Damage, Placed, find_offset, headers

NO_TIMESTAMP = -1
_UNKNOWN = -2  # a largest timestamp that was not looked up yet
_NEVER = (1 << 63) - 1
_MEMO_LIMIT = 64
_LOCATE_WINDOW = 8 << 10


class Segment:
    __slots__ = (
        "_aborted_index",
        "_aborts",
        "_bytes_since_entry",
        "_largest_timestamp",
        "_largest_timestamp_offset",
        "_write",
        "base_offset",
        "created_ms",
        "directory",
        "fd",
        "file",
        "files",
        "first_timestamp",
        "index_entries_max",
        "index_interval_bytes",
        "indexes",
        "memo",
        "reservation",
        "reserved_end",
        "roll_after_clock",
        "roll_after_timestamp",
        "roll_age_ms",
        "size",
    )

    def __init__(
        self, files: Files, directory: str, base_offset: int, *, size: int, created_ms: int, aborts: bool = False
    ) -> None:
        self.files = files
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.file: OpenFile | None = None
        self.fd = -1
        self.indexes = Indexes(files, stem=self.path(""), base_offset=base_offset)
        # Where batches start, by offset: the last few appended, and where recent reads were cut. A reader's next
        # request begins at one of these more often than not.
        self.memo: dict[int, int] = {}
        self.first_timestamp = NO_TIMESTAMP
        self.reserved_end = 0  # see `storage.reservation`
        self.reservation: Reservation | None = None
        self.index_interval_bytes = 4096
        self.index_entries_max = _NEVER
        self.roll_age_ms = _NEVER
        self.roll_after_timestamp = _NEVER
        self.roll_after_clock = _NEVER
        self._aborts = aborts
        self._aborted_index: AbortedIndex | None = None
        self._bytes_since_entry = 0
        self._largest_timestamp = _UNKNOWN if size else NO_TIMESTAMP
        self._largest_timestamp_offset = base_offset
        self._write = files.write

    @classmethod
    def create(cls, files: Files, directory: str, base_offset: int, *, created_ms: int) -> Segment:
        """Makes a new, empty segment. Its indexes get their files with their first entry, or at its end: each costs a
        fifth of a millisecond, and many a partition stays empty for long."""
        segment = cls(files, directory, base_offset, size=0, created_ms=created_ms)
        files.overwrite(segment.path(names.LOG), b"")
        segment.indexes.begin()
        return segment

    def make_files(self) -> None:
        """As `create`, of a segment that is written to at once: all files are made, and the log's is opened. It comes
        last: with it the segment is one of the log's, should the node be killed then."""
        self.indexes.begin_files()
        file = self.files.open_data(self.path(names.LOG), create=True)
        try:
            if self.files.open_size(file.fileno()):
                self.files.truncate(file.fileno(), 0)
        except OSError as error:
            self._unmake(error)
            raise
        self.file, self.fd = file, file.fileno()

    def _unmake(self, error: OSError) -> None:
        """The log goes on in the segment before: a start must not take this one for its end, nor one after a power cut,
        which may bring back its name after what was written to the other was synced."""
        path = self.path(names.LOG)
        try:
            self.files.remove(path)
            self.files.sync_directory(self.directory)
        except OSError as second:
            raise LogOffline(f"{path} cannot be used ({error}), nor removed ({second})") from error

    def path(self, suffix: str) -> str:
        return os.path.join(self.directory, names.file_name(self.base_offset, suffix))

    def renamed_to(self, directory: str) -> None:
        """The log's directory has another name. What is open stays so."""
        self.directory = directory
        self.indexes.renamed_to(self.path(""))
        self._aborted_index = None

    # Writing

    def write(self, data: Buffer, size: int) -> int:
        """Appends bytes and returns where they start. If that fails the file is as before, or the log goes offline."""
        fd = self.fd
        if fd < 0:
            fd = self.open_file().fileno()
        position = self.size
        try:
            written = self._write(fd, data)
            if written != size:
                self.files.write_all(fd, memoryview(data)[written:])
        except OSError as error:
            self._undo_write(fd, position, error)
        self.size = position + size
        return position

    def put(self, fd: int, data: Buffer, *, position: int) -> None:
        """The part of `write` that waits for the disk, for any thread. `size` stays: nobody reads these bytes yet."""
        try:
            self.files.write_all(fd, data)
        except OSError as error:
            self._undo_write(fd, position, error)

    def _undo_write(self, fd: int, position: int, error: OSError) -> None:
        try:
            self.files.truncate(fd, position)
        except OSError as second:
            raise LogOffline(
                f"{self.path(names.LOG)}: a write failed ({error}), and so did cutting it off at {position} ({second})"
            ) from error
        raise WriteFailed(f"{self.path(names.LOG)}: {error}") from error

    def note_batch(self, *, position: int, size: int, base_offset: int, last_offset: int, timestamp: int) -> None:
        """Takes note of a batch that `write` put at `position`: index entries, largest timestamp, memo."""
        if position == 0:
            self.first_timestamp = timestamp
            self.set_roll_age(self.roll_age_ms)
        if timestamp > self._largest_timestamp:
            self._largest_timestamp = timestamp
            self._largest_timestamp_offset = last_offset
        if self._bytes_since_entry > self.index_interval_bytes:
            self._add_entry(offset=last_offset, position=position)
        self._bytes_since_entry += size
        memo = self.memo
        if len(memo) >= _MEMO_LIMIT:
            memo.clear()
        memo[base_offset] = position

    def _add_entry(self, *, offset: int, position: int) -> None:
        indexes = self.indexes
        offsets = self.offset_index() if indexes.offsets is None else indexes.offsets
        offsets.append(offset=offset, position=position)
        self._time_index_end().append_if_later(timestamp=self._largest_timestamp, offset=self._largest_timestamp_offset)
        self._bytes_since_entry = 0
        if len(offsets) >= self.index_entries_max:
            self.roll_after_clock = -1  # any time is after that: the next append begins a new segment
        self.indexes.save_when_many()

    def set_roll_age(self, age_ms: int) -> None:
        """When to end the segment: once a batch comes that is `age_ms` later than the first, by their timestamps. If
        the first has none, the wall clock decides."""
        self.roll_age_ms = age_ms
        self.roll_after_timestamp = self.roll_after_clock = _NEVER
        if self.first_timestamp >= 0:
            self.roll_after_timestamp = self.first_timestamp + age_ms
        elif self.size:
            self.roll_after_clock = self.created_ms + age_ms

    def add_abort(self, transaction: AbortedTransaction) -> None:
        self._aborts = self.indexes.changed = True
        self.aborted_index().append(transaction)

    def reset_aborts(self) -> None:
        if self._aborts:
            self.aborted_index().reset()
            self._aborts = False

    def seal(self) -> None:
        """Finishes the segment before it becomes inactive: its last time entry tells retention how old it is."""
        if (save := self.begin_seal()) is not None:
            try:
                save()
            finally:
                self.indexes.finish_save(save)

    def begin_seal(self) -> IndexSave | None:
        """`seal` in two steps: see `Indexes.begin_save`."""
        if not self.size:
            return None
        timestamp = self.largest_timestamp()
        self._time_index_end().append_if_later(timestamp=timestamp, offset=self._largest_timestamp_offset)
        return self.indexes.begin_save()

    # Files and indexes, opened when needed

    @property
    def is_open(self) -> bool:
        """Whether a read finds file and offset index, and whatever else it needs, without opening anything."""
        aborted = self._aborted_index
        has_aborts = not self._aborts or (aborted is not None and aborted.is_loaded)
        offsets = self.indexes.offsets
        return self.file is not None and offsets is not None and not offsets.skipped and has_aborts

    def copy(self) -> Segment:
        """The segment as it is now, for another thread to read. What is open is shared, the indexes are copied."""
        copy = Segment(
            self.files,
            self.directory,
            self.base_offset,
            size=self.size,
            created_ms=self.created_ms,
            aborts=self._aborts,
        )
        copy.file, copy.fd = self.file, self.fd
        copy.index_interval_bytes = self.index_interval_bytes
        copy.indexes = self.indexes.copy()
        copy._largest_timestamp = self._largest_timestamp
        copy._largest_timestamp_offset = self._largest_timestamp_offset
        return copy

    def open(self) -> None:
        """Opens what `is_open` asks for."""
        self.open_file()
        self.offset_index()
        if self._aborts:
            self.aborted_index().entries()

    def adopt(self, opened: Segment) -> None:
        """Takes over what a copy has opened, unless it has been opened here since, or the segment is another now."""
        self.indexes.adopt_beginning(opened.indexes)  # which is the same, however much was written since
        if opened.size != self.size or self._aborts != opened._aborts or opened.indexes.cuts != self.indexes.cuts:
            return  # as long again after a truncation, perhaps
        if self.file is None and opened.file is not None:
            self.file, self.fd = opened.file, opened.fd
        if self.indexes.offsets is None:
            self.indexes.adopt(opened.indexes)
        if self._aborted_index is None:
            self._aborted_index = opened._aborted_index

    def open_file(self) -> OpenFile:
        if self.file is None:
            path = self.path(names.LOG)
            try:
                file = self.files.open_data(path)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise TooManyOpenFiles(f"{path} cannot be opened: {error.strerror} (ulimit -n)") from error
                raise
            if self.files.is_scarce(file.fileno()):
                file.close()
                raise TooManyOpenFiles(f"{path} is not opened: nearly as many files are open as may be (ulimit -n)")
            on_disk = self.files.open_size(file.fileno())
            if on_disk < self.size:
                raise CorruptLog(path=path, position=on_disk, reason=f"the file ends here, not at {self.size}")
            self.file = file
            self.fd = file.fileno()
        return self.file

    def release(self) -> None:
        """Lets go of what can be had again from disk. Slices in flight keep the file open for themselves."""
        self.file, self.fd, self._aborted_index = None, -1, None
        self.indexes.forget()
        self.memo.clear()

    def close_file(self) -> None:
        self.file, self.fd = None, -1

    def offset_index(self) -> OffsetIndex:
        index = self.indexes.offsets
        if index is None or index.skipped:
            index = self.indexes.load_offsets(log_size=self.size)
            if index is None or (not index and self.size > self.index_interval_bytes):
                return self.rebuild_indexes()[0]
        return index

    def time_index(self) -> TimeIndex:
        index = self.indexes.times
        if index is None or index.skipped:
            index = self.indexes.load_times()
            if index is None or (not index and self.size):
                return self.rebuild_indexes()[1]
        return index

    def _time_index_end(self) -> TimeIndex:
        """As much of it as is in memory, to add to it or to look at its last entry."""
        times = self.indexes.times
        return self.time_index() if times is None else times

    def start_rebuild(self) -> tuple[OffsetIndex, TimeIndex]:
        """Begins the indexes, and what else is known from the batches, anew."""
        self._largest_timestamp = NO_TIMESTAMP
        self._largest_timestamp_offset = self.base_offset
        self._bytes_since_entry = 0
        self.first_timestamp = NO_TIMESTAMP
        self.memo.clear()
        return self.indexes.begin()

    def rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Makes both indexes anew from the batch headers."""
        offsets, times = self.start_rebuild()
        fd = self.open_file().fileno()
        try:
            for position, header in headers(self.files, fd, position=0, end=self.size):
                self.note_batch(
                    position=position,
                    size=header.size,
                    base_offset=header.base_offset,
                    last_offset=header.last_offset,
                    timestamp=header.max_timestamp,
                )
        except Damage as damage:
            raise self._corrupt(damage) from None
        self.finish_rebuild()
        return offsets, times

    def finish_rebuild(self) -> None:
        """As `seal`, but on a full disk the files stay behind: they will be rebuilt when next needed."""
        self.time_index().append_if_later(timestamp=self._largest_timestamp, offset=self._largest_timestamp_offset)
        self.indexes.save_if_possible()

    def adopt_mended(self, offsets: OffsetIndex, times: TimeIndex, *, aborts: bool | None) -> None:
        """The indexes were made anew and are on disk; the aborted transactions too, unless `aborts` is None."""
        self.indexes.replace(offsets, times)
        self.memo.clear()
        self._largest_timestamp = _UNKNOWN if self.size else NO_TIMESTAMP
        if aborts is not None:
            self._aborts = aborts
            self._aborted_index = None

    # Reading. `files`: another door to the files than the segment's own, if given (see storage.cold).

    def _searchable(self, files: Files | None) -> OffsetIndex:
        index = self.indexes.offsets
        if index is not None and not index.skipped:
            return index
        if files is not None:
            raise ColdSegment(self)
        return self.offset_index()

    def locate(self, offset: int, files: Files | None = None) -> int:
        """Where the first batch starts that ends at or after `offset`; the segment's size if there is none."""
        if offset <= self.base_offset:
            return 0
        position = self.memo.get(offset)
        if position is not None:
            return position
        return self._locate_by_index(offset, files)

    def _locate_by_index(self, offset: int, files: Files | None) -> int:
        entry = self._searchable(files).floor(offset)
        start = 0 if entry is None else entry[1]
        fd = self.open_file().fileno()
        first_last = None if entry is None else entry[0]
        try:
            return find_offset(files or self.files, fd, offset, position=start, end=self.size, first_last=first_last)
        except Damage as damage:
            if entry is None:
                raise self._corrupt(damage) from None
            # The index points into the middle of a batch: it is the index that is wrong, unless the log is too.
            self.rebuild_indexes()
            return self._locate_by_index(offset, files)

    def cut(self, *, start: int, limit: int, files: Files | None = None) -> int:
        """Where to end a read of at most `limit` bytes from `start`: at a batch boundary that the index knows, if any.

        Returns `start` when no indexed batch starts in between.
        """
        entry = self._searchable(files).last_up_to(start + limit)
        if entry is None or entry[1] <= start:
            return start
        base_offset = self.base_offset_at(entry[1], files)
        if not self.base_offset <= base_offset <= entry[0]:
            # No batch starts there. A reader must not get a part of one, and wait for the rest for ever.
            entry = self.rebuild_indexes()[0].last_up_to(start + limit)
            if entry is None or entry[1] <= start:
                return start
            base_offset = self.base_offset_at(entry[1], files)
        self._memorize(base_offset, entry[1])
        return entry[1]

    def walk(self, *, start: int, limit: int, files: Files | None = None) -> int:
        """The last batch boundary within `limit` bytes from `start`, found batch by batch; `start` if there is none."""
        fd = self.open_file().fileno()
        end, next_offset = start, -1
        files = files or self.files
        try:
            for position, header in headers(files, fd, position=start, end=self.size, window=_LOCATE_WINDOW):
                if position + header.size - start > limit:
                    break
                end, next_offset = position + header.size, header.next_offset
        except Damage as damage:
            raise self._corrupt(damage) from None
        if end > start:
            self._memorize(next_offset, end)
        return end

    def _memorize(self, offset: int, position: int) -> None:
        if len(self.memo) >= _MEMO_LIMIT:
            self.memo.clear()
        self.memo[offset] = position

    def base_offset_at(self, position: int, files: Files | None = None) -> int:
        """The first offset of the batch at `position`."""
        data = (files or self.files).pread(self.fd if self.fd >= 0 else self.open_file().fileno(), 8, position)
        if len(data) != 8:
            raise self._corrupt(Damage(position, "the file ends where a batch should start", past_end=True))
        return int.from_bytes(data, "big")

    def batch_size_at(self, position: int, files: Files | None = None) -> int:
        data = (files or self.files).read_range(self.open_file().fileno(), position=position + 8, length=4)
        size = LENGTH_END + int.from_bytes(data, "big", signed=True)
        if size < HEADER_SIZE or position + size > self.size:
            raise self._corrupt(Damage(position, f"a batch of {size} bytes cannot be here"))
        return size

    def largest_timestamp(self) -> int:
        """The largest batch timestamp, or -1. For an inactive segment the time index's last entry says it."""
        if self._largest_timestamp == _UNKNOWN:
            last = self._last_time_entry()
            self._largest_timestamp, self._largest_timestamp_offset = last or (NO_TIMESTAMP, self.base_offset)
        return self._largest_timestamp

    def may_hold(self, timestamp: int | None) -> bool:
        """Whether a batch here may have a timestamp at or after this one, as far as that is known without reading."""
        return timestamp is None or self._largest_timestamp == _UNKNOWN or self._largest_timestamp >= timestamp

    def _last_time_entry(self) -> tuple[int, int] | None:
        """The time index's last entry, read alone where it can be: retention asks every segment for it."""
        entry = self.indexes.last_time_on_disk() if self.indexes.times is None else None
        return entry if entry is not None else self._time_index_end().last()

    def largest_timestamp_or_age(self) -> int:
        """For retention: batches without timestamps are as old as the file says."""
        timestamp = self.largest_timestamp()
        return timestamp if timestamp >= 0 else self.files.modified_ms(self.path(names.LOG))

    def position_for_timestamp(self, timestamp: int) -> int:
        """Where the first batch starts whose largest timestamp is at or after `timestamp`; the size if none."""
        for is_made_anew in (False, True):
            entry = self.offset_index().floor(self.time_index().floor(timestamp))
            try:
                return self._first_at_or_after(timestamp, entry)
            except Damage as damage:
                if entry is None or is_made_anew:
                    raise self._corrupt(damage) from None
                self.rebuild_indexes()  # it is the index that is wrong, unless the log is too
        raise AssertionError

    def _first_at_or_after(self, timestamp: int, entry: tuple[int, int] | None) -> int:
        """From the batch on that an entry of the offset index leads to; Damage if it is another one."""
        fd = self.open_file().fileno()
        start = 0 if entry is None else entry[1]
        for position, header in headers(self.files, fd, position=start, end=self.size):
            if entry is not None and position == start and header.last_offset != entry[0]:
                raise Damage(position, "the index does not match the log")
            if header.max_timestamp >= timestamp:
                return position
        return self.size

    def headers(self, *, position: int) -> Iterator[Placed]:
        """(position, header) of each batch from `position` on. Raises CorruptLog where there is none."""
        try:
            yield from headers(self.files, self.open_file().fileno(), position=position, end=self.size)
        except Damage as damage:
            raise self._corrupt(damage) from None

    def _corrupt(self, damage: Damage) -> CorruptLog:
        return CorruptLog(path=self.path(names.LOG), position=damage.position, reason=damage.reason)

    # Changing

    def load_tail(self) -> int:
        """Reads what lies after the last index entry of a cleanly closed segment; returns its end offset. The indexes'
        ends are in memory then, and stay there while it is written to: one that cannot be read, or must be made anew,
        may not come up when a batch is written already and not yet noted."""
        if self.size == 0:
            self.start_rebuild()
            return self.base_offset
        if self.indexes.offsets is None and not self.indexes.load_ends(log_size=self.size):
            self.time_index()
            self.offset_index()
        try:
            end_offset = self._read_tail()
            last_time = self._time_index_end().last()
            if last_time is None or last_time[1] < end_offset:
                return end_offset
            self.rebuild_indexes()  # they are not of this log
        except Damage as damage:
            try:
                self.rebuild_indexes()
            except CorruptLog:
                raise damage from None
        return self._read_tail()

    def _read_tail(self) -> int:
        """The end offset; Damage if the offset index's last entry is not of the batch where it leads to."""
        offsets = self.indexes.offsets
        last = None if offsets is None else offsets.last()
        start = 0 if last is None else last[1]
        self._largest_timestamp = _UNKNOWN
        self.largest_timestamp()
        end_offset = self.base_offset
        fd = self.open_file().fileno()
        for position, header in headers(self.files, fd, position=start, end=self.size):
            end_offset = header.next_offset
            if position == start and last is not None and header.last_offset != last[0]:
                raise Damage(position, "the index does not match the log")
            if position == 0:
                self.first_timestamp = header.max_timestamp
            if header.max_timestamp > self._largest_timestamp:
                self._largest_timestamp = header.max_timestamp
                self._largest_timestamp_offset = header.last_offset
        self._bytes_since_entry = self.size - start
        if start:
            _, first = next(headers(self.files, fd, position=0, end=self.size, window=_LOCATE_WINDOW))
            self.first_timestamp = first.max_timestamp
        return end_offset

    def complete_indexes(self) -> None:
        """Adds what a power cut took from the end of a sealed segment's indexes. Where the log itself is damaged they
        stay as they are: whoever reads there will say so."""
        if not self.size:
            return
        with suppress(CorruptLog):
            times, offsets = self.time_index(), self.offset_index()
            last_time, last = times.last(), offsets.last()
            if last_time is not None and last is not None:
                last = min(last, offsets.floor(last_time[1]) or (0, 0))
            for _, header in self.headers(position=last[1] if last is not None else 0):
                times.append_if_later(timestamp=header.max_timestamp, offset=header.last_offset)
        self._largest_timestamp = _UNKNOWN
        with suppress(OSError):
            self.indexes.save()
            self.indexes.sync()

    def truncate(self, *, offset: int, position: int) -> None:
        """Cuts the file at `position`, where the first batch that ends at or past `offset` starts. Durable at once:
        what replaces these bytes must never be seen mixed with them."""
        assert 0 <= position <= self.size, f"cannot cut {self.size} bytes at {position}"
        assert offset >= self.base_offset, f"offset {offset} lies before the segment's first, {self.base_offset}"
        fd = self.open_file().fileno()
        self.offset_index()
        self.time_index()
        self.files.truncate(fd, position)
        self.files.fdatasync(fd)
        self.size = position
        self.memo.clear()
        self.indexes.keep_before(offset=offset, position=position)
        self.indexes.save()
        if self._aborts:
            self.aborted_index().keep_before(offset)
        self._reread_timestamps()

    def _reread_timestamps(self) -> None:
        self._largest_timestamp, self._largest_timestamp_offset = NO_TIMESTAMP, self.base_offset
        if self.size == 0:
            self.first_timestamp = NO_TIMESTAMP
            self._bytes_since_entry = 0
            return
        self._largest_timestamp = _UNKNOWN
        self.load_tail()

    def aborted_index(self) -> AbortedIndex:
        if self._aborted_index is None:
            self._aborted_index = AbortedIndex(self.files, self.path(names.ABORTED_INDEX))
        return self._aborted_index

    @property
    def has_aborts(self) -> bool:
        return self._aborts
