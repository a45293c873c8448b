"""Is a log sound? Every byte of it is read; see storage/checking.py for what is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemark.storage import checkpoints
from tidemark.storage.checking import Known, Step, check_log
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.tools.places import PartitionPlace, is_compacted, read_checkpoint, was_stopped_cleanly


def verify(place: PartitionPlace, files: Files = REAL_FILES) -> Iterator[Step]:
    """What is wrong with a partition's log, and (as numbers) how many bytes more have been read."""
    return check_log(files, place.path, place.segments, known_of(files, place))


def known_of(files: Files, place: PartitionPlace) -> Known:
    """What the log directory says of the partition. How far it was synced is where it ends, if it was closed."""
    known = Known(compacted=is_compacted(files, place))
    if not was_stopped_cleanly(files, place.log_directory):
        return known
    points = read_checkpoint(files, place.log_directory, checkpoints.RECOVERY_POINTS)
    return replace(known, end_offset=points.get((place.topic, place.partition)))
