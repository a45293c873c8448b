"""A partition's log: segments in a row, the last of which is written to.

Synchronous, single-threaded, and cheap: an append is a header patch, one write(2) and a few assignments; a read is a
dictionary look-up and a (file, position, length) that somebody else sends.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import NamedTuple

from tidemark.protocol.records import BatchHeader, EndTransaction, place_batch, read_end_transaction
from tidemark.storage import history, loading, lookup, replicated
from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.cache import SegmentCache
from tidemark.storage.config import LogConfig
from tidemark.storage.errors import BatchTooLarge, LogOffline, OffsetOutOfRange, WriteFailed
from tidemark.storage.files import REAL_FILES, Buffer, Files
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.maintenance import Maintenance
from tidemark.storage.producers import ProducerState
from tidemark.storage.segment import Segment
from tidemark.storage.slices import FileSlice, slice_segment

_CONTROL = history.CONTROL
_LOG_APPEND_TIME = 0x08


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int = -1  # -1: the records carry their producer's time
    duplicate: bool = False  # the batch was in the log already, at these offsets


_new_tuple = tuple.__new__  # what the class itself would call, without the call in between


class Found(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Log(Maintenance):
    """Appending and reading. What keeps a log in shape (flush, truncation, retention, closing) is Maintenance."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        config: LogConfig,
        files: Files = REAL_FILES,
        now_ms: Callable[[], int] = wall_clock_ms,
        topic_id: bytes | None = None,
        recovery_point: int = 0,
        clean: bool,
        start_offset: int = 0,
        cache: SegmentCache | None = None,
        chance: Callable[[], float] = random.random,
    ) -> Log:
        """Opens a partition's directory, or creates it. `clean` says that the last owner closed it properly; if not,
        everything past the recovery point is checked, and CorruptLog raised if it is damaged beyond a torn tail."""
        directory = os.path.abspath(directory)
        loaded = loading.load(
            files,
            directory,
            config=config,
            now_ms=now_ms(),
            topic_id=topic_id,
            recovery_point=recovery_point,
            clean=clean,
            start_offset=start_offset,
        )
        return cls(
            directory,
            config=config,
            files=files,
            now_ms=now_ms,
            cache=cache if cache is not None else SegmentCache(limit=8),
            chance=chance,
            loaded=loaded,
        )

    # Appending

    def append(self, batch: bytearray | memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int) -> Appended:
        """Appends one checked batch as the partition's leader: gives it its offsets and epoch, in place."""
        if self._offline is not None:
            raise LogOffline(self._offline)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        size = 12 + header.batch_length
        timestamp = header.max_timestamp
        append_time = timestamp if header.attributes & _LOG_APPEND_TIME else -1
        producer_id = header.producer_id
        marker: EndTransaction | None = None
        if producer_id >= 0:
            if header.attributes & _CONTROL:
                marker = self._check_marker(batch, header)
            elif (repeated := self._producers.check(header)) is not None:
                return Appended(repeated.first_offset, repeated.last_offset, append_time, True)
        if leader_epoch > self._epochs.saved:
            self._begin_epoch(leader_epoch, start=base_offset)
        segment = self._segments.active
        if (
            segment.size + size > self._segment_bytes
            or timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_clock
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            segment = self._roll_for(size=size, first_offset=base_offset, last_offset=last_offset)
        place_batch(batch, 0, base_offset=base_offset, leader_epoch=leader_epoch)
        try:
            position = segment.write(batch, size)
        except LogOffline as error:
            self.fail(str(error))
            raise
        segment.note_batch(
            position=position, size=size, base_offset=base_offset, last_offset=last_offset, timestamp=timestamp
        )
        self.end_offset = last_offset + 1
        if producer_id >= 0:
            self._note_producer(header, marker, first_offset=base_offset, last_offset=last_offset)
        return _new_tuple(Appended, (base_offset, last_offset, append_time, False))

    def append_replicated(self, data: Buffer) -> int:
        """Appends batches as a follower: they keep the offsets and epochs the leader gave them. A torn last batch (a
        fetch may end in one) is left out. Returns the log's new end offset."""
        self.check_online()
        view = memoryview(data)
        batches = replicated.check(view, end_offset=self.end_offset)
        for run in replicated.split(batches, self._segments.active, segment_bytes=self._segment_bytes):
            self._append_run(run, view[run.start : run.start + run.size])
        return self.end_offset

    def _append_run(self, run: replicated.Run, data: memoryview) -> None:
        first, last = run.batches[0][0], run.batches[-1][0]
        segment = self._segments.active
        if (
            segment.size + run.size > self._segment_bytes
            or first.max_timestamp > segment.roll_after_timestamp
            or self._now_ms() > segment.roll_after_clock
            or last.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            segment = self._roll_for(size=run.size, first_offset=first.base_offset, last_offset=last.last_offset)
        for header, _ in run.batches:
            if header.partition_leader_epoch > self._epochs.saved:
                self._begin_epoch(header.partition_leader_epoch, start=header.base_offset)
        try:
            position = segment.write(data, run.size)
        except LogOffline as error:
            self.fail(str(error))
            raise
        for header, batch in run.batches:
            segment.note_batch(
                position=position,
                size=header.size,
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                timestamp=header.max_timestamp,
            )
            position += header.size
            self.end_offset = header.next_offset
            if header.producer_id >= 0:
                marker = history.read_marker(batch) if header.attributes & _CONTROL else None
                self._note_producer(header, marker, first_offset=header.base_offset, last_offset=header.last_offset)

    def _check_marker(self, batch: Buffer, header: BatchHeader) -> EndTransaction | None:
        marker = read_end_transaction(batch)
        if marker is not None:
            self._producers.check_marker(header, coordinator_epoch=marker.coordinator_epoch)
        return marker

    def _note_producer(
        self, header: BatchHeader, marker: EndTransaction | None, *, first_offset: int, last_offset: int
    ) -> None:
        aborted = history.note_batch(
            self._producers, header, marker, first_offset=first_offset, last_offset=last_offset
        )
        if aborted is None:
            return
        try:
            self._segments.active.add_abort(aborted)
        except OSError as error:
            # The marker is in the log, but readers would not learn of the abort and be shown aborted records.
            self.fail(f"the index of aborted transactions cannot be written: {error}")
            self.check_online()

    def start_epoch(self, epoch: int) -> None:
        """A new leader epoch begins at the log's end."""
        self.check_online()
        if epoch > self._epochs.latest:
            self._epochs.announce(epoch=epoch, start=self.end_offset)

    def _begin_epoch(self, epoch: int, *, start: int) -> None:
        try:
            self._epochs.assign(epoch=epoch, start=start)
        except OSError as error:
            raise WriteFailed(f"{self._epochs.path}: {error}") from error

    # Rolling

    def _roll_for(self, *, size: int, first_offset: int, last_offset: int) -> Segment:
        if size > self._segment_bytes:
            raise BatchTooLarge(f"{size} bytes do not fit into a segment of {self._segment_bytes}")
        active = self._segments.active
        if active.size == 0 and last_offset - active.base_offset <= MAX_RELATIVE_OFFSET:
            return active
        # Replicated offsets may leap so far that the batch cannot be told relative to the log's end. Then the segment
        # begins at the batch itself.
        leaps = last_offset - self.end_offset > MAX_RELATIVE_OFFSET
        self._roll_to(first_offset if leaps else self.end_offset)
        return self._segments.active

    # Reading

    def read(
        self, *, offset: int, limit_bytes: int, up_to: int | None = None, at_least_one: bool = True
    ) -> list[FileSlice]:
        """Whole batches from the one that holds `offset`, of at most `limit_bytes` (the first may exceed them if
        `at_least_one`), ending at or before `up_to`. One segment's worth at most; empty only at the end."""
        if self._offline is not None:
            raise LogOffline(self._offline)
        end_offset = self.end_offset
        if up_to is None or up_to > end_offset:
            up_to = end_offset
        if offset >= up_to or offset < self.start_offset:
            if offset > end_offset or offset < self.start_offset:
                raise OffsetOutOfRange(offset=offset, start=self.start_offset, end=end_offset)
            return []
        segment = self._segments.active
        if offset < segment.base_offset:
            return self._read_inactive(offset, limit_bytes, up_to=up_to, at_least_one=at_least_one)
        position = segment.memo.get(offset)
        if position is None:
            position = segment.locate(offset)
        end = segment.size if up_to == end_offset else segment.locate(up_to)
        return slice_segment(segment, start=position, end=end, limit_bytes=limit_bytes, at_least_one=at_least_one)

    def _read_inactive(self, offset: int, limit_bytes: int, *, up_to: int, at_least_one: bool) -> list[FileSlice]:
        for segment, next_base in self._segments.starting_with(offset):
            if segment.base_offset >= up_to:
                break
            start = segment.locate(offset)
            whole = up_to == self.end_offset or (next_base is not None and next_base <= up_to)
            end = segment.size if whole else segment.locate(up_to)
            if start < end:
                return slice_segment(segment, start=start, end=end, limit_bytes=limit_bytes, at_least_one=at_least_one)
            # Nothing here: the offset lies in a gap that compaction left at this segment's end.
        return []

    def aborted_transactions(self, *, from_offset: int, up_to: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in from_offset..up_to-1, for a read_committed reader to skip."""
        self.check_online()
        found: list[AbortedTransaction] = []
        for segment in self._segments.from_offset(from_offset):
            if not segment.has_aborts:
                continue
            here, complete = segment.aborted_index().collect(first=from_offset, end=up_to)
            found.extend(here)
            if complete:
                break
        return found

    def aborted_in(self, offset: int, slices: list[FileSlice]) -> list[AbortedTransaction]:
        """Aborted transactions with records in what a read from `offset` returned."""
        if not any(segment.has_aborts for segment in self._segments.from_offset(offset)):
            return []
        return self.aborted_transactions(from_offset=offset, up_to=self._end_of(offset, slices[-1]))

    def _end_of(self, offset: int, read: FileSlice) -> int:
        """The offset after the last batch of a slice."""
        for segment, next_base in self._segments.starting_with(offset):
            if segment.file is read.file:
                end = read.position + read.length
                if end < segment.size:
                    return segment.base_offset_at(end)
                return self.end_offset if next_base is None else next_base
        return self.end_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what a read_committed reader may see."""
        return self._producers.last_stable_offset(high_watermark)

    def offset_for_timestamp(self, timestamp: int) -> Found | None:
        """The first record at or after a time."""
        self.check_online()
        match = lookup.first_at_or_after(self._segments, timestamp, start_offset=self.start_offset)
        return None if match is None else Found(*match)

    def offset_of_max_timestamp(self) -> Found | None:
        """The record with the largest timestamp, the first of them if several."""
        self.check_online()
        match = lookup.latest(self._segments, start_offset=self.start_offset)
        return None if match is None else Found(*match)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not after `epoch` and where it ends; (-1, -1) if unknown (OffsetForLeaderEpoch)."""
        return self._epochs.end_offset(epoch, log_end=self.end_offset)

    def epoch_at(self, offset: int) -> int:
        return self._epochs.epoch_at(offset)

    def producers(self) -> list[ProducerState]:
        return self._producers.states()

    def producer(self, producer_id: int) -> ProducerState | None:
        return self._producers.get(producer_id)

    def expire_producers(self, now_ms: int) -> None:
        self._producers.expire(now_ms=now_ms, idle_ms=self._config.producer_id_expiration_ms)
