"""What a follower fetched becomes part of its log: one write for each segment that it ends up in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.protocol.records import BatchHeader, iter_batches, verify_batch
from tidemark.storage import history
from tidemark.storage.errors import LogOffline, NonContiguousAppend
from tidemark.storage.files import Buffer
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.segment import Segment

if TYPE_CHECKING:
    from tidemark.storage.log import Log

Batch = tuple[BatchHeader, memoryview]


@dataclass(slots=True)
class Run:
    """Consecutive batches that go into one segment with one write."""

    start: int
    size: int = 0
    batches: list[Batch] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.size += batch[0].size


def check(view: memoryview, *, end_offset: int) -> list[Batch]:
    """The whole batches in `view`, verified and following `end_offset`. A fetch may end in part of one: left out."""
    batches = []
    for header, batch in iter_batches(view, partial_tail=True):
        verify_batch(batch)
        if header.base_offset < end_offset or header.last_offset_delta < 0:
            raise NonContiguousAppend(
                f"offsets {header.base_offset}..{header.last_offset} cannot follow {end_offset - 1}"
            )
        end_offset = header.next_offset
        batches.append((header, batch))
    return batches


def split(batches: Sequence[Batch], active: Segment, *, segment_bytes: int) -> list[Run]:
    """Runs of batches; each after the first begins a new segment, the first only if the active one is full."""
    runs: list[Run] = []
    room = segment_bytes - active.size
    base, roll_after = active.base_offset, active.roll_after_timestamp
    position = 0
    for batch in batches:
        header = batch[0]
        full = header.size > room or header.max_timestamp > roll_after
        if not runs or full or header.last_offset - base > MAX_RELATIVE_OFFSET:
            if full or runs:
                room, base = segment_bytes, header.base_offset
                roll_after = header.max_timestamp + active.roll_age_ms
            runs.append(Run(start=position))
        runs[-1].add(batch)
        room -= header.size
        position += header.size
    return runs


def append(log: Log, data: Buffer) -> int:
    """`Log.append_replicated`."""
    view = memoryview(data)
    batches = check(view, end_offset=log.end_offset)
    for run in split(batches, log.segments.active, segment_bytes=log.config.segment_bytes):
        _append_run(log, run, view[run.start : run.start + run.size])
    return log.end_offset


def _append_run(log: Log, run: Run, data: memoryview) -> None:
    segment = _segment_for(log, run)
    for header, _ in run.batches:
        if header.partition_leader_epoch > log.epochs.saved:
            log.begin_epoch(header.partition_leader_epoch, start=header.base_offset)
    try:
        position = segment.write(data, run.size)
    except LogOffline as error:
        log.fail(str(error))
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
        log.end_offset = header.next_offset
        if header.producer_id >= 0:
            marker = history.read_marker(batch) if header.attributes & history.CONTROL else None
            log.note_producer(header, marker, first_offset=header.base_offset, last_offset=header.last_offset)


def _segment_for(log: Log, run: Run) -> Segment:
    first, last = run.batches[0][0], run.batches[-1][0]
    assert first.base_offset >= log.end_offset, f"offset {first.base_offset} before the end {log.end_offset}"
    segment, now_ms = log.segments.active, log.now_ms()
    if (
        segment.size + run.size <= log.unhindered_bytes
        and first.max_timestamp <= segment.roll_after_timestamp
        and now_ms <= segment.roll_after_clock
        and last.last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET
    ):
        return segment
    return log.make_room(
        size=run.size,
        first_offset=first.base_offset,
        last_offset=last.last_offset,
        timestamp=first.max_timestamp,
        now_ms=now_ms,
    )
