"""A segment's pair of indexes: in memory while they are needed, on disk in Kafka's files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tidemark.storage import names
from tidemark.storage.files import Files
from tidemark.storage.index import OffsetIndex, TimeIndex

_SAVE_AFTER_ENTRIES = 1024
_TO_REPLACE = -1  # what the file holds is not of this index
_BEING_SAVED = -2  # how much it holds is known when the thread that writes is done


Index = TypeVar("Index", OffsetIndex, TimeIndex)


def _joined(whole: Index | None, end: Index | None) -> Index | None:
    """A whole index and what was added to its end since; None if there is nothing to join."""
    if end is None or not end.skipped or whole is None or whole.skipped:
        return None
    whole.take_over(end)
    return whole


class IndexSave:
    """What the files of a pair of indexes lack: to be written on any thread."""

    __slots__ = ("_writes", "entries", "is_done")

    def __init__(self, writes: list[Callable[[], None]], *, entries: tuple[int, int]) -> None:
        self._writes = writes
        self.entries = entries  # that the files hold then, of either
        self.is_done = False

    def __call__(self) -> None:
        for write in self._writes:
            write()
        self.is_done = True

    def if_possible(self) -> None:
        """See `Indexes.save_if_possible`."""
        with suppress(OSError):
            self()


class Indexes:
    """The offset and the time index of one segment. `offsets` and `times` are None until loaded or begun; of the
    segment that is written to, only their ends may be in memory (`skipped`). `changed`: a file was written to since the
    log was opened, and may not be synced."""

    __slots__ = (
        "_base",
        "_files",
        "_is_anew",
        "_is_being_saved",
        "_is_save_due",
        "_owns_files",
        "_saved_offsets",
        "_saved_times",
        "_stem",
        "changed",
        "cuts",
        "offsets",
        "times",
    )

    def __init__(self, files: Files, *, stem: str, base_offset: int) -> None:
        self._files = files
        self._stem = stem  # the path without the suffix
        self._base = base_offset
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self._saved_offsets = self._saved_times = _TO_REPLACE
        self._owns_files = True
        self._is_anew = False  # both were begun here, and not read
        self._is_being_saved = False  # between `begin_save` and `finish_save`
        self._is_save_due = False  # it was asked for meanwhile
        self.changed = False
        self.cuts = 0  # how often their ends were cut off, with the segment's

    def begin(self) -> tuple[OffsetIndex, TimeIndex]:
        """Starts both anew, in memory. Saving them replaces what the files hold."""
        self.forget()
        self._is_anew = True
        self.offsets, self.times = OffsetIndex(self._base), TimeIndex(self._base)
        return self.offsets, self.times

    def begin_files(self) -> None:
        """As `begin`; the files are made at once, and empty."""
        self.begin()
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
            self._files.overwrite(self._stem + suffix, b"")
        self._saved_offsets = self._saved_times = 0
        self.changed = True

    def renamed_to(self, stem: str) -> None:
        self._stem = stem

    def forget(self) -> None:
        self.offsets = self.times = None
        self._is_anew = False
        self._saved_offsets = self._saved_times = _TO_REPLACE

    def copy(self) -> Indexes:
        """Of what is loaded; for another thread to read. By the time it makes an index anew, the files may be those of
        a cleaned segment, so it saves nothing."""
        copy = Indexes(self._files, stem=self._stem, base_offset=self._base)
        copy.cuts = self.cuts  # first: a thread may be about to truncate
        copy.disown_files()
        copy.offsets = None if self.offsets is None else self.offsets.copy()
        copy.times = None if self.times is None else self.times.copy()
        copy._saved_offsets = max(self._saved_offsets, _TO_REPLACE)
        copy._saved_times = max(self._saved_times, _TO_REPLACE)
        return copy

    def disown_files(self) -> None:
        """The files are another's, or gone: nothing is saved any more."""
        self._owns_files = False

    def adopt(self, loaded: Indexes) -> None:
        """Takes over what a copy has loaded. What it had to make anew is saved. Times that it has not made are as they
        were when it was copied: the segment may have been sealed since, which adds to them."""
        self.offsets, self._saved_offsets = loaded.offsets, loaded._saved_offsets
        if loaded._is_anew:
            self.times, self._saved_times = loaded.times, loaded._saved_times
            self.save_if_possible()

    def adopt_beginning(self, loaded: Indexes) -> None:
        """Takes over what a copy has loaded where only the end is here. What was added to it since stays. What it had
        to make anew is saved, as the segment may be sealed already, and would not be saved again."""
        if loaded.cuts != self.cuts:
            return
        is_anew = False
        if (offsets := _joined(loaded.offsets, self.offsets)) is not None:
            self.offsets = offsets
            if loaded._saved_offsets < 0:
                self._saved_offsets, is_anew = _TO_REPLACE, True
        if (times := _joined(loaded.times, self.times)) is not None:
            self.times = times
            if loaded._saved_times < 0:
                self._saved_times, is_anew = _TO_REPLACE, True
        if is_anew:
            self.save_if_possible()

    def replace(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Both were made anew, and are in their files already."""
        self.offsets, self.times = offsets, times
        self._saved_offsets, self._saved_times = len(offsets), len(times)
        self.changed = True

    @property
    def saved_entries(self) -> tuple[int | None, int | None]:
        """How many entries of each are in its file; None while nothing was loaded, and so nothing added."""
        return (
            None if self.offsets is None else max(0, self._saved_offsets),
            None if self.times is None else max(0, self._saved_times),
        )

    # Loading: None when the file cannot be believed and both must be rebuilt

    def load_ends(self, *, log_size: int) -> bool:
        """Loads what is needed to add to both; false when they have to be loaded whole. How long this takes does not
        depend on how long they are; that they are sound is found out when they are first searched."""
        offsets = OffsetIndex.end_of_file(
            self._files, self._stem + names.OFFSET_INDEX, base_offset=self._base, log_size=log_size
        )
        times = TimeIndex.end_of_file(self._files, self._stem + names.TIME_INDEX, base_offset=self._base)
        if offsets is None or times is None:
            return False
        self.offsets, self._saved_offsets = offsets, len(offsets)
        self.times, self._saved_times = times, len(times)
        return True

    def load_offsets(self, *, log_size: int) -> OffsetIndex | None:
        data, end = self._read(names.OFFSET_INDEX, self.offsets), self.offsets
        self.offsets = None
        if data is not None:
            self.offsets = OffsetIndex.decode(data, base_offset=self._base, log_size=log_size)
        if self.offsets is None:
            self._saved_offsets = _TO_REPLACE
        elif end is None:
            self._saved_offsets = len(self.offsets)
        return self.offsets

    def load_times(self) -> TimeIndex | None:
        data, end = self._read(names.TIME_INDEX, self.times), self.times
        self.times = TimeIndex.decode(data, base_offset=self._base) if data is not None else None
        if self.times is None:
            self._saved_times = _TO_REPLACE
        elif end is None:
            self._saved_times = len(self.times)
        return self.times

    def last_time_on_disk(self) -> tuple[int, int] | None:
        """The time index's last entry, read alone; None when that would not be reliable."""
        return TimeIndex.last_in_file(self._files, self._stem + names.TIME_INDEX, base_offset=self._base)

    def _read(self, suffix: str, end: OffsetIndex | TimeIndex | None) -> bytes | None:
        """What the file holds; up to `end`, and that behind it, if the end is in memory."""
        try:
            data = self._files.read_all(self._stem + suffix)
        except FileNotFoundError:
            return None
        if end is None:
            return data
        skipped_bytes = end.skipped * end.ENTRY_SIZE
        return data[:skipped_bytes] + end.encode(first=end.skipped) if len(data) >= skipped_bytes else None

    # Saving

    def save(self) -> None:
        """Brings the files up to what memory holds."""
        if (save := self.begin_save()) is not None:
            try:
                save()
            finally:
                self.finish_save(save)

    def begin_save(self) -> IndexSave | None:
        """`save` in two steps. What is returned may be called on another thread; `finish_save` follows in any case. If
        one is under way, this one is done when that is finished."""
        self._is_save_due = self._is_being_saved
        if self._is_being_saved or not self._owns_files:
            return None
        writes, entries = [], []
        for suffix, index, saved in (
            (names.OFFSET_INDEX, self.offsets, self._saved_offsets),
            (names.TIME_INDEX, self.times, self._saved_times),
        ):
            entries.append(_TO_REPLACE if index is None else len(index))
            if index is not None and saved < len(index):
                writes.append(self._write(self._stem + suffix, index, saved=saved))
        self.changed = self.changed or bool(writes)
        self._is_being_saved = True
        self._saved_offsets = self._saved_times = _BEING_SAVED
        return IndexSave(writes, entries=(entries[0], entries[1]))

    def finish_save(self, save: IndexSave) -> None:
        """Takes note of what the files hold now; nothing is known of that if the disk refused, or if the indexes are
        others since."""
        self._is_being_saved = False
        offsets, times = save.entries if save.is_done else (_TO_REPLACE, _TO_REPLACE)
        if self._saved_offsets == _BEING_SAVED:
            self._saved_offsets = offsets
        if self._saved_times == _BEING_SAVED:
            self._saved_times = times
        if self._is_save_due:
            self.save_if_possible()

    def save_if_possible(self) -> None:
        """Saves, unless the disk refuses. Indexes can be rebuilt: they are no reason to fail an append or a read."""
        with suppress(OSError):
            self.save()

    def sync(self) -> None:
        """What was written since the log was opened."""
        if self.changed:
            for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
                self._files.sync_file(self._stem + suffix)

    @property
    def unsaved_entries(self) -> int:
        return 0 if self.offsets is None else len(self.offsets) - max(0, self._saved_offsets)

    def save_when_many(self) -> None:
        """The first entry at once, where there are no files yet: Kafka's tools want them to exist."""
        unsaved = self.unsaved_entries
        if unsaved >= _SAVE_AFTER_ENTRIES or (unsaved and self._saved_offsets < 0):
            self.save_if_possible()

    def begin_save_when_many(self) -> IndexSave | None:
        """For another thread, before it must be done on this one."""
        return self.begin_save() if self.is_save_near else None

    @property
    def is_save_near(self) -> bool:
        return self.unsaved_entries >= _SAVE_AFTER_ENTRIES // 2

    def keep_before(self, *, offset: int, position: int) -> None:
        """Drops entries at or past an offset and position, in memory; the files follow with the next save."""
        self.cuts += 1
        if self.offsets is not None:
            self.offsets.keep_before(offset=offset, position=position)
        if self.times is not None:
            self.times.keep_before(offset=offset)
        self._saved_offsets = self._saved_times = _TO_REPLACE

    def _write(self, path: str, index: OffsetIndex | TimeIndex, *, saved: int) -> Callable[[], None]:
        if saved >= 0:
            return partial(self._files.append_to, path, index.encode(first=saved))
        if index.skipped:  # these are in the file, whatever became of those behind them
            return partial(self._replace_end, path, index.skipped * index.ENTRY_SIZE, index.encode(first=index.skipped))
        return partial(self._files.overwrite, path, index.encode())

    def _replace_end(self, path: str, kept_bytes: int, end: bytes) -> None:
        self._files.truncate_file(path, kept_bytes)
        self._files.append_to(path, end)
