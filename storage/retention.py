"""Which segments may go. Only whole ones, from the oldest on, and never past the first that must stay."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, pairwise, takewhile
from typing import TYPE_CHECKING

from tidemark.storage import rolling
from tidemark.storage.config import LogConfig
from tidemark.storage.deletion import disowned_paths, rename_for_deletion
from tidemark.storage.errors import OffsetOutOfRange, WriteFailed
from tidemark.storage.segment import Segment
from tidemark.storage.segments import Segments

if TYPE_CHECKING:
    from tidemark.storage.log import Log


def delete_before(log: Log, offset: int, *, later: bool) -> None:
    """See `Log.delete_before`."""
    log.check_online()
    if offset > log.end_offset:
        raise OffsetOutOfRange(offset=offset, start=log.start_offset, end=log.end_offset)
    if offset <= log.start_offset:
        return
    log.start_offset = offset
    log.epochs.truncate_start(log.start_offset)
    _delete_first(log, wholly_before(log.segments, offset), later=later)


def apply(log: Log, now_ms: int, *, high_watermark: int | None, later: bool) -> bool:
    """See `Log.apply_retention`."""
    log.check_online()
    count = deletable(
        log.segments,
        config=log.config,
        now_ms=now_ms,
        start_offset=log.start_offset,
        end_offset=log.end_offset,
        high_watermark=log.end_offset if high_watermark is None else high_watermark,
    )
    if count == len(log.segments):
        count = _roll_or_keep_active(log, count)
    try:
        _delete_first(log, count, later=later)
    finally:  # of those that went, if not all could go
        if log.start_offset < log.segments.first_offset:
            log.start_offset = log.segments.first_offset
            log.epochs.truncate_start(log.start_offset)
    return count > 0


def _roll_or_keep_active(log: Log, count: int) -> int:
    """Even the active segment has expired: a new one takes its place, so that the log keeps its end. On a full disk
    there is no room for that; the others must go all the same. So must they if the active one is being written to."""
    if log.is_appending:
        return count - 1
    try:
        rolling.roll_to(log, log.end_offset)
    except WriteFailed:
        return count - 1
    return count


def _delete_first(log: Log, count: int, *, later: bool) -> None:
    due_ms = log.now_ms() + log.config.file_delete_delay_ms
    if count and not later:
        _set_live_aside(log)
    for segment in list(islice(log.segments, count)):
        if later:
            log.deletions.add_live(log.snapshots.disowned_paths(segment.base_offset), due_ms=due_ms)
            log.deletions.add_live(disowned_paths(segment), due_ms=due_ms)
        else:
            _set_aside(log, segment, due_ms=due_ms)
        log.segments.remove_first()
        log.unsynced.forget_segment(segment)
        segment.release()


def _set_live_aside(log: Log) -> None:
    """Those that went before go first: after a kill in between, the log would have a gap."""
    try:
        log.deletions.set_aside_all(log.files)
    except OSError as error:
        raise WriteFailed(f"{log.directory}: segments cannot be deleted: {error}") from error


def _set_aside(log: Log, segment: Segment, *, due_ms: int) -> None:
    try:  # the snapshot first: without it the segment can stay
        log.deletions.add(log.snapshots.rename_for_deletion(segment.base_offset), due_ms=due_ms)
        log.deletions.add(rename_for_deletion(segment), due_ms=due_ms)
    except OSError as error:  # it stays in the log, and is tried again
        raise WriteFailed(f"{log.directory}: cannot delete segment {segment.base_offset}: {error}") from error


# Each of these looks at the segments that go, and at the first that stays: a log may have thousands.


def wholly_before(segments: Segments, offset: int) -> int:
    """How many leading segments end at or before `offset`. The active one never counts."""
    return sum(1 for _ in takewhile(lambda pair: pair[1].base_offset <= offset, pairwise(segments)))


def deletable(
    segments: Segments,
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
    while count and segments.end_of(count - 1, end_offset) > high_watermark:
        count -= 1
    if count == len(segments) and segments.active.size == 0:
        count -= 1  # an empty active segment is where the log goes on
    return count


def _beyond_size(segments: Segments, limit: int) -> int:
    """The most segments that can go while at least `limit` bytes stay."""
    if limit < 0:
        return 0
    surplus = segments.size_bytes - limit
    return _leading(segments, lambda segment, before: before + segment.size <= surplus)


def _beyond_age(segments: Segments, config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    oldest = now_ms - config.retention_ms
    return _leading(segments, lambda segment, _: segment.size == 0 or segment.largest_timestamp_or_age() < oldest)


def _leading(segments: Segments, goes: Callable[[Segment, int], bool]) -> int:
    """How many segments from the first on go; `goes` sees a segment and the bytes before it."""
    before = 0
    for count, segment in enumerate(segments):
        if not goes(segment, before):
            return count
        before += segment.size
    return len(segments)
