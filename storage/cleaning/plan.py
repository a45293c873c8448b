"""Which part of a log is to be cleaned, and whether it is time. The rules are Kafka's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tidemark.storage.cleaning.job import NO_DATA, CleaningJob, LastRecord, SourceSegment
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.segment import Segment

if TYPE_CHECKING:
    from tidemark.storage.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirtiness:
    """How much of a log could be cleaned now."""

    first_dirty_offset: int
    end_offset: int  # of what may be cleaned
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # a record has waited for max.compaction.lag.ms

    @property
    def all_bytes(self) -> int:
        return self.clean_bytes + self.dirty_bytes

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / self.all_bytes if self.all_bytes else 0.0


def measure(log: Log, *, cleaned_up_to: int, high_watermark: int, now_ms: int) -> Dirtiness:
    """What there is to clean, given where the last cleaning ended. For the log's thread: it may read a few entries of
    time indexes."""
    first_dirty = cleaned_up_to
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    segments = list(log.segments)
    count = _cleanable(log, segments, first_dirty=first_dirty, high_watermark=high_watermark, now_ms=now_ms)
    dirty = [each for each, end in _with_ends(segments[: count + 1]) if end > first_dirty]
    dirty_bytes = sum(each.size for each in dirty)
    return Dirtiness(
        first_dirty_offset=first_dirty,
        end_offset=segments[count].base_offset,
        clean_bytes=sum(each.size for each in segments[:count]) - dirty_bytes,
        dirty_bytes=dirty_bytes,
        is_overdue=_is_overdue(dirty, lag_ms=log.config.max_compaction_lag_ms, now_ms=now_ms),
    )


def is_due(log: Log, dirtiness: Dirtiness) -> bool:
    if not dirtiness.dirty_bytes:
        return False
    return dirtiness.is_overdue or dirtiness.ratio > log.config.min_cleanable_dirty_ratio


def _cleanable(log: Log, segments: Sequence[Segment], *, first_dirty: int, high_watermark: int, now_ms: int) -> int:
    """How many leading segments may be cleaned: not the active one, nothing past the last stable offset, nothing that
    is not on disk for good, and no record younger than min.compaction.lag.ms."""
    limit = min(log.last_stable_offset(high_watermark), log.recovery_point)
    count = len(segments) - 1
    if not segments[-1].size:
        count -= 1  # the log's last batch stays: a follower that is behind must find something that leads to the end
    while count > 0 and segments[count].base_offset > limit:
        count -= 1
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for at, (segment, end) in enumerate(_with_ends(segments[: max(count, 0) + 1])):
            if end > first_dirty and segment.size and segment.largest_timestamp() > now_ms - lag_ms:
                return at
    return max(count, 0)


def _with_ends(segments: Sequence[Segment]) -> Iterator[tuple[Segment, int]]:
    """Each segment but the last, with the base of the next."""
    return ((each, following.base_offset) for each, following in pairwise(segments))


def _is_overdue(dirty: Sequence[Segment], *, lag_ms: int, now_ms: int) -> bool:
    if lag_ms > now_ms:  # as by default: never
        return False
    times = (_first_timestamp(each) for each in dirty if each.size)
    earliest = min((each for each in times if each >= 0), default=now_ms)
    return now_ms - earliest > lag_ms


def _first_timestamp(segment: Segment) -> int:
    return next(segment.headers(position=0))[1].max_timestamp


def job_for(
    log: Log,
    dirtiness: Dirtiness,
    *,
    now_ms: int,
    map_bytes: int,
    hash_seed: int,
    map_load_factor: float = 0.9,
    bytes_per_second: float = float("inf"),
    is_patient: bool = False,
) -> CleaningJob:
    """The work of cleaning a log up to where it may be."""
    segments = list(log.segments)
    sources = [
        SourceSegment(base_offset=each.base_offset, size=each.size, end_offset=end)
        for each, end in _with_ends(segments)
        if end <= dirtiness.end_offset
    ]
    return CleaningJob(
        directory=log.directory,
        generation=log.generation,
        groups=tuple(group(sources, segment_bytes=log.config.segment_bytes)),
        abort_indexes=tuple(each.base_offset for each in segments if each.has_aborts),
        first_dirty_offset=dirtiness.first_dirty_offset,
        end_offset=dirtiness.end_offset,
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        last_records={
            each.producer_id: LastRecord(each.batches[-1].last_offset if each.batches else NO_DATA, each.epoch)
            for each in log.producers()
        },
        map_bytes=map_bytes,
        map_load_factor=map_load_factor,
        index_interval_bytes=log.config.index_interval_bytes,
        hash_seed=hash_seed,
        bytes_per_second=bytes_per_second,
        is_patient=is_patient,
    )


def group(segments: Sequence[SourceSegment], *, segment_bytes: int) -> Iterator[tuple[SourceSegment, ...]]:
    """Neighbours that fit into one segment together, whatever is left of them."""
    together: list[SourceSegment] = []
    for segment in segments:
        size = sum(each.size for each in together) + segment.size
        spans = segment.end_offset - together[0].base_offset if together else 0
        if together and (size > segment_bytes or spans > MAX_RELATIVE_OFFSET):
            yield tuple(together)
            together = []
        together.append(segment)
    if together:
        yield tuple(together)
