"""Making anew what is derived from the batches of a log that goes on.

What takes long is done beside the log (`prepare`, on any thread): files under a temporary name. To put them in place
(`put_in_place`, on the log's thread) is a few renames, and not done if the segment is another by then.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.storage import names
from tidemark.storage.aborted import ENTRY, VERSION, AbortedTransaction
from tidemark.storage.checking import Finding
from tidemark.storage.checkpoints import write_partition_metadata
from tidemark.storage.files import Files
from tidemark.storage.index import OffsetIndex, TimeIndex
from tidemark.storage.scan import headers

if TYPE_CHECKING:
    from tidemark.storage.log import Log
    from tidemark.storage.segment import Segment

_TEMPORARY = ".tmp"  # a start removes what has this suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class MendingJob:
    directory: str
    base_offset: int
    size: int
    generation: int
    index_interval_bytes: int
    aborted: tuple[AbortedTransaction, ...] | None  # None: their index is left as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    job: MendingJob
    offsets: OffsetIndex
    times: TimeIndex
    suffixes: tuple[str, ...]


def can_be_mended(finding: Finding) -> bool:
    """Which transactions were aborted cannot always be told from what is left of a log."""
    is_known = not finding.path.endswith(names.ABORTED_INDEX) or finding.aborted is not None
    return finding.is_derived and is_known


def mending_job(log: Log, segment: Segment, findings: Sequence[Finding]) -> MendingJob:
    aborts = next((each.aborted for each in findings if each.path.endswith(names.ABORTED_INDEX)), None)
    return MendingJob(
        directory=log.directory,
        base_offset=segment.base_offset,
        size=segment.size,
        generation=log.generation,
        index_interval_bytes=log.config.index_interval_bytes,
        aborted=aborts,
    )


def prepare(job: MendingJob, files: Files) -> Mended:
    """Both indexes from the batches, and the aborted transactions as they should be. Raises OSError, or Damage."""
    stem = _stem(job)
    offsets, times = _index(job, files, stem + names.LOG)
    contents = {names.OFFSET_INDEX: offsets.encode(), names.TIME_INDEX: times.encode()}
    if job.aborted:
        contents[names.ABORTED_INDEX] = b"".join(ENTRY.pack(VERSION, *each) for each in job.aborted)
    for suffix, content in contents.items():
        files.overwrite(stem + suffix + _TEMPORARY, content)
        files.sync_file(stem + suffix + _TEMPORARY)
    return Mended(job=job, offsets=offsets, times=times, suffixes=tuple(contents))


def _stem(job: MendingJob) -> str:
    return os.path.join(job.directory, names.file_name(job.base_offset, ""))


def _index(job: MendingJob, files: Files, path: str) -> tuple[OffsetIndex, TimeIndex]:
    offsets, times = OffsetIndex(job.base_offset), TimeIndex(job.base_offset)
    largest, largest_offset, since_entry = -1, job.base_offset, 0
    file = files.open_to_read(path)
    try:
        for position, header in headers(files, file.fileno(), position=0, end=job.size):
            if header.max_timestamp > largest:
                largest, largest_offset = header.max_timestamp, header.last_offset
            if since_entry > job.index_interval_bytes:
                offsets.append(offset=header.last_offset, position=position)
                times.append_if_later(timestamp=largest, offset=largest_offset)
                since_entry = 0
            since_entry += header.size
    finally:
        file.close()
    times.append_if_later(timestamp=largest, offset=largest_offset)
    return offsets, times


def put_in_place(log: Log, segment: Segment, mended: Mended) -> bool:
    """False if the segment is not what it was, or another has its place: then nothing is changed."""
    job = mended.job
    log.check_online()
    is_there = log.segments.consecutive([job.base_offset]) == [segment]
    is_same = is_there and segment.size == job.size and log.generation == job.generation
    if not is_same or segment is log.segments.active:
        for suffix in mended.suffixes:
            log.files.remove(_stem(job) + suffix + _TEMPORARY)
        return False
    for suffix in mended.suffixes:
        log.files.rename(_stem(job) + suffix + _TEMPORARY, _stem(job) + suffix)
    if job.aborted == ():
        log.files.remove(_stem(job) + names.ABORTED_INDEX)
    segment.adopt_mended(mended.offsets, mended.times, aborts=None if job.aborted is None else bool(job.aborted))
    return True


def mend_beside(log: Log, findings: Sequence[Finding]) -> None:
    """The files beside the segments: memory knows what they should say. Snapshots that are damaged are of no use."""
    for path in sorted({each.path for each in findings}):
        name = os.path.basename(path)
        if name == names.EPOCHS:
            log.epochs.rewrite()
        elif name == names.PARTITION_METADATA and log.topic_id is not None:
            write_partition_metadata(log.files, path, log.topic_id)
        elif name.endswith(names.SNAPSHOT) and (offset := names.offset_of(name)) is not None:
            log.snapshots.remove(offset)
            log.files.remove(path)
