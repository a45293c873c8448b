"""What is in a log, as figures: records, keys, tombstones, batches, codecs, producers, and what is to be compacted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidemark.protocol.records import InvalidBatch
from tidemark.storage import names
from tidemark.storage.cleaning.job import CleaningFailed
from tidemark.storage.cleaning.key_hash import KeyHash
from tidemark.storage.cleaning.record_table import read_records
from tidemark.storage.cleaning.windows import CODEC, CONTROL, TRANSACTIONAL, Window, windows
from tidemark.storage.errors import CorruptLog
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.tools.dump import CODECS
from tidemark.storage.tools.places import CLEANED, PartitionPlace, read_checkpoint

KEYS_MAX = 20_000_000  # distinct ones that are counted, at 8 bytes each


@dataclass(slots=True)
class Stats:
    topic: str
    partition: int
    segments: int = 0
    size_bytes: int = 0
    batches: int = 0
    records: int = 0
    keys: int = 0  # different ones
    has_more_keys: bool = False  # than are counted
    without_key: int = 0
    tombstones: int = 0
    markers: int = 0  # control batches: ends of transactions, say
    transactional_batches: int = 0
    producers: int = 0  # with an id
    batch_bytes_min: int = 0
    batch_bytes_max: int = 0
    codecs: dict[str, int] = field(default_factory=dict)  # batches
    first_offset: int = 0
    end_offset: int = 0
    first_timestamp: int = -1
    last_timestamp: int = -1
    cleaned_up_to: int | None = None  # None: it was never compacted
    dirty_ratio: float = 0.0  # bytes since then, of all that may be compacted

    @property
    def batch_bytes_mean(self) -> float:
        return self.size_bytes / self.batches if self.batches else 0.0


def stats(place: PartitionPlace, files: Files = REAL_FILES) -> Iterator[int | Stats]:
    """Numbers tell how many bytes more were read; the last value is the result. Raises CorruptLog at damage."""
    counting = _Counting(Stats(topic=place.topic, partition=place.partition))
    for segment in place.segments:
        path = os.path.join(place.path, names.file_name(segment.base_offset, names.LOG))
        try:
            for window in windows(files, path, start=0, end=segment.size, paced=lambda _: None):
                counting.add(window)
                yield int(window.ends[-1])
        except (CleaningFailed, InvalidBatch) as error:
            raise CorruptLog(path=path, position=0, reason=str(error)) from error
    yield counting.result(files, place)


class _Counting:
    def __init__(self, result: Stats) -> None:
        self._result = result
        self._hash = KeyHash(0)
        self._keys: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)
        self._producers: set[int] = set()
        self._codecs: Counter[int] = Counter()

    def add(self, window: Window) -> None:
        found, headers, attributes = self._result, window.headers, window.attributes
        if not found.batches:
            found.first_offset = int(window.base_offsets[0])
        sizes = window.ends - window.starts
        found.batch_bytes_min = min(found.batch_bytes_min or int(sizes.min()), int(sizes.min()))
        found.batch_bytes_max = max(found.batch_bytes_max, int(sizes.max()))
        found.batches += len(window)
        found.size_bytes += int(sizes.sum())
        found.end_offset = int(window.last_offsets[-1]) + 1
        self._codecs.update((attributes & CODEC).tolist())
        is_control = attributes & CONTROL != 0
        found.markers += int(is_control.sum())
        found.transactional_batches += int(((attributes & TRANSACTIONAL != 0) & ~is_control).sum())
        self._producers.update(np.unique(headers["producer_id"][headers["producer_id"] >= 0]).tolist())
        self._add_records(window, np.flatnonzero(~is_control))

    def _add_records(self, window: Window, batches: NDArray[np.int64]) -> None:
        found, records = self._result, read_records(window, batches)
        found.records += len(records)
        found.tombstones += int((records.is_tombstone & (records.key_lengths >= 0)).sum())
        keyed = np.flatnonzero(records.key_lengths >= 0)
        found.without_key += len(records) - len(keyed)
        self._add_times(records.timestamps)
        if len(keyed) and not found.has_more_keys:
            hashes = self._hash(window.data, records.key_starts[keyed], records.key_lengths[keyed])
            self._keys = np.union1d(self._keys, hashes[:, 0])
            found.has_more_keys = len(self._keys) > KEYS_MAX

    def _add_times(self, timestamps: NDArray[np.int64]) -> None:
        known, found = timestamps[timestamps >= 0], self._result
        if len(known):
            first = int(known.min())
            found.first_timestamp = first if found.first_timestamp < 0 else min(found.first_timestamp, first)
            found.last_timestamp = max(found.last_timestamp, int(known.max()))

    def result(self, files: Files, place: PartitionPlace) -> Stats:
        found = self._result
        found.segments = len(place.segments)
        found.keys = min(len(self._keys), KEYS_MAX)
        found.producers = len(self._producers)
        found.codecs = {CODECS[codec]: count for codec, count in sorted(self._codecs.items()) if codec < len(CODECS)}
        checkpoint = read_checkpoint(files, place.log_directory, CLEANED)
        found.cleaned_up_to = checkpoint.get((place.topic, place.partition))
        found.dirty_ratio = _dirty_ratio(place, found.cleaned_up_to or 0)
        return found


def _dirty_ratio(place: PartitionPlace, cleaned_up_to: int) -> float:
    """As the cleaner counts: whole segments, without the one that is written to."""
    inactive = place.segments[:-1]
    ends = [each.base_offset for each in place.segments[1:]]
    dirty = sum(each.size for each, end in zip(inactive, ends, strict=True) if end > cleaned_up_to)
    total = sum(each.size for each in inactive)
    return dirty / total if total else 0.0
