"""Is a log sound? Every byte of it is read; see storage/checking.py for what is looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from tidemark.storage import checkpoints, names
from tidemark.storage.checking import Finding, Known, Step, check_log
from tidemark.storage.files import REAL_FILES, Files
from tidemark.storage.tools.places import PartitionPlace, is_compacted, read_checkpoint, was_stopped_cleanly


def verify(place: PartitionPlace, files: Files = REAL_FILES) -> Iterator[Step]:
    """What is wrong with a partition's log, and (as numbers) how many bytes more have been read."""
    yield from _interrupted(files, place)
    yield from check_log(files, place.path, place.segments, known_of(files, place))


def _interrupted(files: Files, place: PartitionPlace) -> Iterator[Finding]:
    for name in files.list(place.path):
        if name.endswith(names.LOG + names.SWAP):
            reason = "a cleaning was interrupted here; the broker's next start, or a repair, finishes it"
            yield Finding(path=os.path.join(place.path, name), position=0, reason=reason, is_derived=True)


def known_of(files: Files, place: PartitionPlace) -> Known:
    """What the log directory says of the partition. How far it was synced is where it ends, if it was closed."""
    known = Known(compacted=is_compacted(files, place))
    if not was_stopped_cleanly(files, place.log_directory):
        return known
    points = read_checkpoint(files, place.log_directory, checkpoints.RECOVERY_POINTS)
    return replace(known, end_offset=points.get((place.topic, place.partition)))
