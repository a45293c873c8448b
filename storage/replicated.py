"""Splitting what a follower fetched into writes: one per segment that it ends up in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemark.protocol.records import BatchHeader, iter_batches, verify_batch
from tidemark.storage.errors import NonContiguousAppend
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.segment import Segment

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
