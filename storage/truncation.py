"""Cutting off a log's end. The last segment goes first, so that an interruption leaves a log without gaps.

If anything fails half-way, what is in memory no longer speaks of what is on disk: the log goes offline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.storage import history
from tidemark.storage.deletion import rename_for_deletion
from tidemark.storage.errors import StorageError, WriteFailed
from tidemark.storage.files import Files
from tidemark.storage.segment import Segment

if TYPE_CHECKING:
    from tidemark.storage.log import Log


def truncate_to(log: Log, offset: int) -> bool:
    """See `Log.truncate_to`."""
    log.settle()
    log.check_online()
    if offset >= log.end_offset:
        # An epoch may have begun at the end without a record: to a broker that never had it, it never was.
        try:
            log.epochs.truncate_end(offset)
        except OSError as error:
            raise WriteFailed(f"{log.epochs.path}: {error}") from error
        return False
    if offset < log.segments.first_offset:
        truncate_fully_and_start_at(log, offset)
        return True
    log.unsynced.note_truncation()
    try:
        log.end_offset = _cut(log, offset)
    except (OSError, StorageError) as error:
        log.fail(f"truncation to {offset} failed: {error}")
        log.check_online()
    log.activate(log.segments.active)
    log.start_offset = min(log.start_offset, log.end_offset)
    log.recovery_point = min(log.recovery_point, log.end_offset)
    _notify_truncated(log)
    return True


def _cut(log: Log, offset: int) -> int:
    """Drops every batch that ends at or past `offset`. Returns the log's new end offset."""
    segments = log.segments
    if segments.active.base_offset > offset:
        while segments.active.base_offset > offset:
            _remove_files(log.files, segments.remove_active())
        # The segment before is cut next, and synced: if a power cut brought these back then, there would be a gap.
        log.files.sync_directory(log.directory)
    active = segments.active
    log.unsynced.keep_segments([segment for segment in segments if segment is not active])
    position = active.locate(offset)
    if position < active.size:
        offset = min(offset, active.base_offset_at(position))
    active.truncate(offset=offset, position=position)
    log.snapshots.remove_after(offset)
    log.files.sync_directory(log.directory)
    log.epochs.truncate_end(offset)
    history.rebuild(
        log.producer_states,
        log.snapshots,
        list(segments),
        end_offset=offset,
        from_snapshot_up_to=offset,
        index_aborts_from=offset,
        remembered=log.remembered.newest(up_to=offset),
    )
    return offset


def truncate_fully_and_start_at(log: Log, offset: int) -> None:
    """See `Log.truncate_fully_and_start_at`."""
    log.settle()
    log.check_online()
    log.unsynced.note_truncation()
    try:
        log.deletions.set_aside_all(log.files)  # the new segment may get a name that one of these still has
        for segment in reversed(list(log.segments)):
            _remove_files(log.files, segment)
        log.snapshots.remove_after(-1)
        log.epochs.clear()
        segment = Segment.create(log.files, log.directory, offset, created_ms=log.now_ms())
        log.files.sync_directory(log.directory)
    except OSError as error:
        log.fail(f"emptying it failed: {error}")
        log.check_online()
    log.producer_states.clear()
    log.remembered.clear()
    log.segments.replace_all(segment)
    log.unsynced.keep_segments([])
    log.start_offset = log.end_offset = log.recovery_point = offset
    log.activate(segment)
    _notify_truncated(log)


def _notify_truncated(log: Log) -> None:
    try:
        if log.on_truncated is not None:
            log.on_truncated()
    except OSError as error:
        log.fail(f"its recovery point cannot be written after a truncation: {error}")
        log.check_online()


def _remove_files(files: Files, segment: Segment) -> None:
    segment.close_file()
    for path in rename_for_deletion(segment):
        files.remove(path)
