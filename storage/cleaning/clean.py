"""The two passes of a cleaning, over the files of a log that goes on meanwhile. Nothing that exists is changed."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator

import numpy as np

from tidemark.protocol.records import InvalidBatch
from tidemark.storage import names
from tidemark.storage.aborted import AbortedIndex, AbortedTransaction
from tidemark.storage.cleaning.cleaned_segment import CleanedSegment
from tidemark.storage.cleaning.filtering import Filter
from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningJob, CleaningStats, SourceSegment
from tidemark.storage.cleaning.key_hash import KeyHash
from tidemark.storage.cleaning.key_map import KeyMap
from tidemark.storage.cleaning.record_table import Keys, Places, find_records, read_keys
from tidemark.storage.cleaning.remembered_sizes import RememberedSizes
from tidemark.storage.cleaning.transactions import TransactionPass
from tidemark.storage.cleaning.windows import CONTROL, TRANSACTIONAL, Window, batch_at, windows
from tidemark.storage.files import Files

Paced = Callable[[int], None]

# A full disk may have room again, and what is missing was deleted with its partition, or by retention.
_PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOENT}


def clean(
    job: CleaningJob, *, files: Files, paced: Paced = lambda _: None
) -> Generator[CleanedGroup, None, CleaningStats]:
    """Yields each new segment when it is complete on disk; the caller swaps it in. `paced` is told of every so many
    bytes that are read or written, and may wait, or raise to give up."""
    try:
        return (yield from _Cleaning(job, files, paced).run())
    except OSError as error:
        raise CleaningFailed(f"{job.directory}: {error}", is_passing=error.errno in _PASSING) from error
    except InvalidBatch as error:
        raise CleaningFailed(f"{job.directory}: {error}") from error


class _Cleaning:
    def __init__(self, job: CleaningJob, files: Files, paced: Paced) -> None:
        self._job = job
        self._files = files
        self._paced = paced
        self._hash = KeyHash(job.hash_seed)
        offsets = job.end_offset - job.first_dirty_offset
        self._map = KeyMap(memory_bytes=job.map_bytes, load_factor=job.map_load_factor, keys_max=offsets)
        self._sizes = RememberedSizes()
        self._end_offset = job.first_dirty_offset  # of what the map knows
        self._bytes_read = 0
        self._aborted = [each for base in job.abort_indexes for each in self._read_aborts(base)]

    def run(self) -> Generator[CleanedGroup, None, CleaningStats]:
        self._build_map()
        transactions = TransactionPass(self._aborted)
        rules = Filter(self._job, self._map, self._hash, self._sizes, transactions, end_offset=self._end_offset)
        size_after = 0
        for group in self._job.groups:
            if group[0].base_offset >= self._end_offset:
                break
            cleaned = self._clean_group(group, rules)
            size_after += cleaned.size
            yield cleaned
        return CleaningStats(
            end_offset=self._end_offset,
            bytes_before=sum(each.size for each in self._job.segments),
            bytes_after=size_after,
            bytes_read=self._bytes_read,
            records_before=rules.records_read,
            records_after=rules.records_kept,
            keys=self._map.size,
            invalid_records=rules.invalid_records,
        )

    def _path(self, base_offset: int, suffix: str) -> str:
        return os.path.join(self._job.directory, names.file_name(base_offset, suffix))

    def _read_aborts(self, base_offset: int) -> list[AbortedTransaction]:
        """Not to know of one would be to take aborted records for the newest of their keys."""
        path = self._path(base_offset, names.ABORTED_INDEX)
        if not self._files.exists(path):
            raise CleaningFailed(f"{path} is gone", is_passing=True)
        return AbortedIndex(self._files, path).entries()

    def _windows(self, segment: SourceSegment) -> Generator[Window, None, None]:
        for window in windows(
            self._files, self._path(segment.base_offset, names.LOG), start=0, end=segment.size, paced=self._paced
        ):
            self._bytes_read += int(window.ends[-1])
            yield window

    # The first pass

    def _build_map(self) -> None:
        transactions = TransactionPass(self._aborted)
        for segment in self._job.segments:
            if segment.end_offset <= self._job.first_dirty_offset:
                continue
            for window in self._windows(segment):
                if not self._note_keys(window, transactions):
                    return  # the map is full: the rest has its turn next time
            self._end_offset = max(self._end_offset, min(segment.end_offset, self._job.end_offset))

    def _note_keys(self, window: Window, transactions: TransactionPass) -> bool:
        """False when the map is full."""
        attributes = window.attributes
        is_wanted = (attributes & CONTROL == 0) & (window.last_offsets >= self._job.first_dirty_offset)
        is_wanted &= window.last_offsets < self._job.end_offset
        for at in np.flatnonzero(attributes & TRANSACTIONAL != 0).tolist():
            if attributes[at] & CONTROL:
                transactions.on_control(*batch_at(window, at))
            elif transactions.on_data(int(window.headers["producer_id"][at]), last_offset=int(window.last_offsets[at])):
                is_wanted[at] = False
        places = find_records(window, np.flatnonzero(is_wanted))
        keys = read_keys(window, places)
        if is_wanted.all():
            self._sizes.note(window, places, keys)
        return self._put(window, places, keys)

    def _put(self, window: Window, places: Places, keys: Keys) -> bool:
        wanted = np.flatnonzero((keys.lengths >= 0) & (keys.offsets >= self._job.first_dirty_offset))
        hashes = self._hash(window.data, keys.starts[wanted], keys.lengths[wanted])
        offsets, batches = keys.offsets[wanted], places.batch[wanted]
        begin = 0
        while begin < len(wanted):
            end = begin + self._map.room
            if end < len(wanted):  # only whole batches
                end = int(np.searchsorted(batches, batches[end], side="left"))
            if end <= begin:
                self._end_of_map(window, int(batches[begin]))
                return False
            self._map.put(hashes[begin:end], offsets[begin:end])
            begin = end
        last = int(window.last_offsets[-1])
        self._end_offset = max(self._end_offset, min(last + 1, self._job.end_offset))
        return True

    def _end_of_map(self, window: Window, batch: int) -> None:
        """The keys of this batch do not fit any more."""
        self._end_offset = max(self._end_offset, int(window.base_offsets[batch]))
        if self._map.size == 0 or self._end_offset <= self._job.first_dirty_offset:
            raise CleaningFailed(
                f"{self._job.directory}: a batch at offset {self._end_offset} has more keys than the"
                f" {self._map.capacity} that fit into the map; raise log.cleaner.dedupe.buffer.size"
            )

    # The second pass

    def _clean_group(self, group: tuple[SourceSegment, ...], rules: Filter) -> CleanedGroup:
        cleaned = CleanedSegment(
            self._files,
            self._job.directory,
            group[0].base_offset,
            index_interval_bytes=self._job.index_interval_bytes,
            paced=self._paced,
        )
        try:
            for segment in group:
                for window in self._windows(segment):
                    rules.copy(window, cleaned)
            for aborted in rules.transactions.take_kept_aborts():
                cleaned.add_abort(aborted)
            replaced = tuple(segment.base_offset for segment in group)
            modified_ms = self._files.modified_ms(self._path(group[-1].base_offset, names.LOG))
            return cleaned.finish(generation=self._job.generation, replaced=replaced, modified_ms=modified_ms)
        except BaseException:
            cleaned.discard()
            raise
