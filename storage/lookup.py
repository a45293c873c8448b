"""Finding records by time: the time index leads to a batch, and only that batch is opened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidemark.protocol.records import iter_records, read_header
from tidemark.storage.segment import NO_TIMESTAMP, Segment


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class Search:
    """For the first record at or after a time, or (None) for the one with the largest timestamp, in the log as it was
    when the search began. To be called on any thread; then `finish`, on the log's."""

    def __init__(self, segments: Iterable[Segment], timestamp: int | None, *, start_offset: int) -> None:
        self._timestamp = timestamp
        self._start_offset = start_offset
        self._segments = [each for each in segments if each.size and each.may_hold(timestamp)]
        self._copies = [each.copy() for each in self._segments]

    def __call__(self) -> Found | None:
        if self._timestamp is None:
            return latest(self._copies, start_offset=self._start_offset)
        return first_at_or_after(self._copies, self._timestamp, start_offset=self._start_offset)

    def run(self) -> Found | None:
        """Both, on the log's thread."""
        found = self()
        self.finish()
        return found

    def finish(self) -> None:
        """What was read of the active segment's indexes stays in memory: the next search will not read it again."""
        for segment, copy in zip(self._segments, self._copies, strict=True):
            segment.indexes.adopt_beginning(copy.indexes)


def first_at_or_after(segments: Iterable[Segment], timestamp: int, *, start_offset: int) -> Found | None:
    """The first record not before `timestamp`, among those from `start_offset` on."""
    for segment in segments:
        if segment.size and segment.largest_timestamp() >= timestamp:
            match = _in_segment(segment, timestamp, start_offset=start_offset)
            if match is not None:
                return match
    return None


def _in_segment(segment: Segment, timestamp: int, *, start_offset: int) -> Found | None:
    start = max(segment.position_for_timestamp(timestamp), segment.locate(start_offset))
    for position, header in segment.headers(position=start):
        if header.max_timestamp < timestamp:
            continue
        match = _in_batch(segment, position, header.size, timestamp, start_offset=start_offset)
        if match is not None:
            return match
    return None


def _in_batch(segment: Segment, position: int, size: int, timestamp: int, *, start_offset: int) -> Found | None:
    data = segment.files.read_range(segment.open_file().fileno(), position=position, length=size)
    epoch = read_header(data).partition_leader_epoch
    for record in iter_records(data):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return Found(record.offset, record.timestamp, epoch)
    return None


def latest(segments: Iterable[Segment], *, start_offset: int) -> Found | None:
    """The first of the records with the largest timestamp of all, among those from `start_offset` on."""
    times = [(_largest(segment, start_offset), segment) for segment in segments if segment.size]
    timestamp = max((each for each, _ in times), default=NO_TIMESTAMP)
    if timestamp < 0:
        return None
    holder = next(segment for each, segment in times if each == timestamp)
    return _in_segment(holder, timestamp, start_offset=start_offset)


def _largest(segment: Segment, start_offset: int) -> int:
    """The largest timestamp of a segment's batches; if the log starts inside it, of those that are still in the log."""
    if start_offset <= segment.base_offset:
        return segment.largest_timestamp()
    placed = segment.headers(position=segment.locate(start_offset))
    return max((header.max_timestamp for _, header in placed), default=NO_TIMESTAMP)
