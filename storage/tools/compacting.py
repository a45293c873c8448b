"""Compacts a partition's log while no broker has it. The rules, and the files on disk, are the broker's."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tidemark.environment import random_bytes, wall_clock_ms
from tidemark.storage import checkpoints
from tidemark.storage.cleaning.clean import clean
from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed, CleaningStats
from tidemark.storage.cleaning.plan import job_for, measure
from tidemark.storage.cleaning.swap import discard, swap
from tidemark.storage.config import LogConfig
from tidemark.storage.errors import StorageError
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.log import Log
from tidemark.storage.tools.places import PartitionPlace, read_checkpoint, was_stopped_cleanly

_SEED_BYTES = 16
_NOTHING = CleaningStats(end_offset=0)
_DAY_MS = 24 * 60 * 60 * 1000


class NotCompacted(StorageError):
    """Nothing was changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def compact(
    place: PartitionPlace,
    *,
    advance: Callable[[int], None] = lambda _: None,
    files: Files = REAL_FILES,
    map_bytes: int = 128 << 20,
    delete_retention_ms: int = _DAY_MS,
    segment_bytes: int = 1 << 30,
) -> Compacted:
    """`advance` is told how many bytes more were read or written: all of them twice, and what stays."""
    if not was_stopped_cleanly(files, place.log_directory):
        raise NotCompacted(f"{place.log_directory} was not closed cleanly: start its broker, and stop it, first.")
    key = place.topic, place.partition
    starts = read_checkpoint(files, place.log_directory, checkpoints.START_OFFSETS)
    cleaned = read_checkpoint(files, place.log_directory, checkpoints.CLEANED_UP_TO)
    config = LogConfig(
        compact=True, delete_retention_ms=delete_retention_ms, segment_bytes=segment_bytes, file_delete_delay_ms=0
    )
    log = Log.open(place.path, config=config, files=files, clean=True, start_offset=starts.get(key, 0))
    try:
        done = _compact(log, place, advance, cleaned_up_to=cleaned.get(key, 0), map_bytes=map_bytes)
        log.remove_deleted(wall_clock_ms())
    finally:
        log.close()
    if done.bytes_before:
        _note_cleaned_up_to(files, place, done.end_offset)
    return Compacted(
        records_before=done.records_before,
        records_after=done.records_after,
        bytes_before=done.bytes_before,
        bytes_after=done.bytes_after,
    )


def _compact(
    log: Log, place: PartitionPlace, advance: Callable[[int], None], *, cleaned_up_to: int, map_bytes: int
) -> CleaningStats:
    watermarks = read_checkpoint(log.files, place.log_directory, checkpoints.HIGH_WATERMARKS)
    committed = min(watermarks.get((place.topic, place.partition), log.end_offset), log.end_offset)
    now_ms = wall_clock_ms()
    dirtiness = measure(log, cleaned_up_to=cleaned_up_to, high_watermark=committed, now_ms=now_ms)
    if not dirtiness.dirty_bytes:
        return _NOTHING
    seed = int.from_bytes(random_bytes(_SEED_BYTES), "big")
    job = job_for(log, dirtiness, now_ms=now_ms, map_bytes=map_bytes, hash_seed=seed)
    cleaning = clean(job, files=log.files, paced=advance)
    groups: list[CleanedGroup] = []
    try:
        while True:
            groups.append(next(cleaning))
    except StopIteration as end:
        stats: CleaningStats = end.value
    except CleaningFailed as error:
        _discard(log, groups)
        raise NotCompacted(str(error)) from error
    if stats.invalid_records:
        _discard(log, groups)
        raise NotCompacted(
            f"{log.directory} holds {stats.invalid_records} records without a key, which compaction would drop:"
            " its topic is not a compacted one."
        )
    _note_cleaned_up_to(log.files, place, cleaned_up_to)  # or, if this is killed, the gaps would look like a loss
    for group in groups:
        swap(log, group)
    return stats


def _note_cleaned_up_to(files: Files, place: PartitionPlace, offset: int) -> None:
    offsets = read_checkpoint(files, place.log_directory, checkpoints.CLEANED_UP_TO)
    offsets[place.topic, place.partition] = offset
    checkpoints.write_offsets(files, os.path.join(place.log_directory, checkpoints.CLEANED_UP_TO), offsets)


def _discard(log: Log, groups: list[CleanedGroup]) -> None:
    for group in groups:
        discard(log, group)
