"""Reads that go beyond the active segment."""

from __future__ import annotations

from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.cold import ColdRead, ColdSegment
from tidemark.storage.errors import StorageError
from tidemark.storage.files import Files
from tidemark.storage.segments import Segments
from tidemark.storage.slices import FileSlice, slice_segment


def read_inactive(
    segments: Segments,
    *,
    offset: int,
    limit_bytes: int,
    up_to: int,
    end_offset: int,
    at_least_one: bool,
    files: Files | None = None,
) -> list[FileSlice]:
    """`Log.read` for an offset before the active segment. `files`: read through these, and open nothing."""
    for segment, next_base in segments.starting_with(offset):
        if segment.base_offset >= up_to:
            break
        if files is not None and not segment.is_open:
            raise ColdSegment(segment)
        start = segment.locate(offset, files)
        whole = up_to == end_offset or (next_base is not None and next_base <= up_to)
        end = segment.size if whole else segment.locate(up_to, files)
        if start < end:
            return slice_segment(
                segment, start=start, end=end, limit_bytes=limit_bytes, at_least_one=at_least_one, files=files
            )
        # Nothing here: the offset lies in a gap that compaction left at this segment's end.
    return []


def aborted_transactions(
    segments: Segments, *, from_offset: int, up_to: int, files: Files | None = None
) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    for segment in segments.from_offset(from_offset):
        if not segment.has_aborts:
            continue
        if files is not None and segment is not segments.active and not segment.is_open:
            raise ColdSegment(segment)
        here, complete = segment.aborted_index().collect(first=from_offset, end=up_to)
        found.extend(here)
        if complete:
            break
    return found


def end_of_slice(
    segments: Segments, offset: int, read: FileSlice, *, end_offset: int, files: Files | None = None
) -> int:
    """The offset after the last batch of a slice that a read from `offset` returned."""
    for segment, next_base in segments.starting_with(offset):
        if segment.file is read.file:
            end = read.position + read.length
            if end < segment.size:
                return segment.base_offset_at(end, files)
            return end_offset if next_base is None else next_base
    return end_offset


def offsets_in(segments: Segments, offset: int, slices: list[FileSlice], *, end_offset: int, files: Files) -> int:
    """How many offsets a read from `offset` returned. It waits for no disk: where the next batch's header is not in
    memory, it goes by the average of the segment."""
    last, active = slices[-1], segments.active
    if last.file is active.file and last.position + last.length >= active.size:
        return end_offset - offset
    try:
        return max(end_of_slice(segments, offset, last, end_offset=end_offset, files=files) - offset, 0)
    except (ColdRead, StorageError):
        return _offsets_on_average(segments, offset, slices, end_offset=end_offset)


def _offsets_on_average(segments: Segments, offset: int, slices: list[FileSlice], *, end_offset: int) -> int:
    for segment, next_base in segments.starting_with(offset):
        if segment.file is slices[-1].file and segment.size:
            span = (end_offset if next_base is None else next_base) - segment.base_offset
            return span * sum(map(len, slices)) // segment.size
    return 0
