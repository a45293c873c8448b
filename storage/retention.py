"""Which segments may go. Only whole ones, from the oldest on, and never past the first that must stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.storage.config import LogConfig
from tidemark.storage.segment import Segment


def wholly_before(segments: Sequence[Segment], offset: int) -> int:
    """How many leading segments end at or before `offset`. The active one never counts."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= offset:
        count += 1
    return count


def deletable(
    segments: Sequence[Segment],
    *,
    config: LogConfig,
    now_ms: int,
    start_offset: int,
    end_offset: int,
    high_watermark: int,
) -> int:
    """How many leading segments retention lets go: those before the log's start, and where the cleanup policy deletes,
    those beyond its size or age. Segments with uncommitted records stay. All of them may expire by age: then the caller
    rolls first."""
    count = wholly_before(segments, start_offset)
    if config.delete:
        count = max(count, _beyond_size(segments, config.retention_bytes), _beyond_age(segments, config, now_ms))
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    while count and ends[count - 1] > high_watermark:
        count -= 1
    if count == len(segments) and segments[-1].size == 0:
        count -= 1  # an empty active segment is where the log goes on
    return count


def _beyond_size(segments: Sequence[Segment], limit: int) -> int:
    """The most segments that can go while at least `limit` bytes stay."""
    if limit < 0:
        return 0
    surplus = sum(segment.size for segment in segments) - limit
    return _leading(segments, lambda segment, before: before + segment.size <= surplus)


def _beyond_age(segments: Sequence[Segment], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    oldest = now_ms - config.retention_ms
    return _leading(segments, lambda segment, _: segment.size == 0 or segment.largest_timestamp_or_age() < oldest)


def _leading(segments: Sequence[Segment], goes: Callable[[Segment, int], bool]) -> int:
    """How many segments from the first on go; `goes` sees a segment and the bytes before it."""
    before = 0
    for count, segment in enumerate(segments):
        if not goes(segment, before):
            return count
        before += segment.size
    return len(segments)
