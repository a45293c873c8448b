"""What there is to read of a log that goes on, and what is known of it beside its files. For the log's thread."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.storage.checking import Known, SegmentFile
from tidemark.storage.scrubbing.job import ScrubJob

if TYPE_CHECKING:
    from tidemark.storage.log import Log
    from tidemark.storage.segment import Segment


def side_job(log: Log, *, compacted: bool) -> ScrubJob:
    """The files beside the segments."""
    known = _known(log, compacted=compacted)
    return ScrubJob(directory=log.directory, segments=(), known=known, bytes_per_second=float("inf"))


def segment_job(log: Log, base_offset: int, *, compacted: bool, bytes_per_second: float) -> ScrubJob | None:
    """One segment as it is now; None if it is there no more."""
    row = list(log.segments)
    bases = [each.base_offset for each in row]
    at = bisect_right(bases, base_offset) - 1
    if at < 0 or bases[at] != base_offset:
        return None
    known = _known(log, compacted=compacted)
    if at + 1 == len(row):
        known = replace(known, end_offset=log.end_offset)
    else:
        known = replace(known, following=bases[at + 1])
    return ScrubJob(
        directory=log.directory,
        segments=(_segment_file(row[at], is_live=row[at] is log.segments.active),),
        known=known,
        bytes_per_second=bytes_per_second,
    )


def _known(log: Log, *, compacted: bool) -> Known:
    return Known(topic_id=log.topic_id, epochs=log.epochs.entries(), compacted=compacted)


def _segment_file(segment: Segment, *, is_live: bool) -> SegmentFile:
    if not is_live:
        return SegmentFile(base_offset=segment.base_offset, size=segment.size)
    offset_entries, time_entries = segment.indexes.saved_entries
    return SegmentFile(
        base_offset=segment.base_offset,
        size=segment.size,
        offset_entries=offset_entries,
        time_entries=time_entries,
        is_live=True,
    )
