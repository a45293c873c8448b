"""Where one segment ends and the next begins.

A roll writes what is missing in the old segment's indexes and the producers' states, and makes the files of the new
segment: while the disk is busy, each of these may wait for a tenth of a second. So the roll for a batch that another
thread writes is left to that thread:

roll = PendingRoll(log, offset)     # on the log's thread: what is to be written is gathered
for step in roll.steps: step()      # anywhere: touches no state of the log
roll.finish(log)                    # on the log's thread: the log goes on in the new segment, or in the old one
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tidemark.storage import reservation
from tidemark.storage.errors import BatchTooLarge, LogOffline, WriteFailed
from tidemark.storage.index import MAX_RELATIVE_OFFSET
from tidemark.storage.segment import Segment

if TYPE_CHECKING:
    from tidemark.storage.log import Log


class PendingRoll:
    """A segment that begins at `base_offset`, and is not in the log yet."""

    __slots__ = ("_is_made", "_old", "_save", "_snapshot", "segment", "steps")

    def __init__(self, log: Log, base_offset: int) -> None:
        self._old = log.segments.active
        assert base_offset >= log.end_offset >= self._old.base_offset, f"a segment cannot begin at {base_offset}"
        self._save = self._old.begin_seal()
        self._snapshot = log.snapshots.begin(base_offset, log.producer_states.to_snapshot())
        self._is_made = False
        self.segment = Segment(log.files, log.directory, base_offset, size=0, created_ms=log.now_ms())
        # The log's file last: a start takes the segment for one of the log's as soon as that is there.
        writes = (self._save, self._snapshot)
        self.steps: list[Callable[[], None]] = [write for write in writes if write is not None]
        self.steps.append(partial(reservation.release, self._old))
        self.steps.append(self._make)

    def _make(self) -> None:
        self.segment.make_files()
        self._is_made = True

    def finish(self, log: Log) -> bool:
        """Whether the log goes on in the new segment. If not, it is as it was before."""
        if self._save is not None:
            self._old.indexes.finish_save(self._save)
        if self._snapshot is not None:
            log.snapshots.finish(self._snapshot)
        if not self._is_made:
            return False
        old, segment = self._old, self.segment
        log.unsynced.note_new_segment(after=old if old.base_offset != segment.base_offset else None)
        log.segments.append(segment)
        log.activate(segment)
        return True


def roll_to(log: Log, base_offset: int) -> None:
    """Here and now."""
    run(log, PendingRoll(log, base_offset))


def end_last(log: Log) -> None:
    """The log is closed: nothing more is written to its last segment."""
    reservation.release(log.segments.active)
    log.segments.active.seal()
    log.snapshots.take(log.end_offset, log.producer_states.to_snapshot())


def run(log: Log, roll: PendingRoll) -> None:
    assert not log.is_appending, "the segment is being written to"
    try:
        for step in roll.steps:
            step()
    except OSError as error:
        raise cannot_roll(roll.segment, error) from error
    except LogOffline as error:
        log.fail(str(error))
        raise
    finally:
        roll.finish(log)


def cannot_roll(segment: Segment, error: OSError) -> WriteFailed:
    return WriteFailed(f"{segment.directory}: cannot begin a segment at {segment.base_offset}: {error}")


def due(log: Log, *, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int) -> PendingRoll | None:
    """The new segment that these offsets need, if they do. If not, this one gets blocks for them."""
    active, segment_bytes = log.segments.active, log.config.segment_bytes
    leaps = last_offset - active.base_offset > MAX_RELATIVE_OFFSET
    if (
        active.size + size <= segment_bytes
        and timestamp <= active.roll_after_timestamp
        and now_ms <= active.roll_after_clock
        and not leaps
    ):
        reservation.reserve(active, segment_bytes=segment_bytes)
        return None
    if size > segment_bytes:
        raise BatchTooLarge(f"{size} bytes do not fit into a segment of {segment_bytes}")
    if active.size == 0 and not leaps:
        return None
    # Replicated offsets may leap so far that they do not fit into the segment's index. Then the segment begins at the
    # batch itself.
    is_too_far = last_offset - log.end_offset > MAX_RELATIVE_OFFSET
    return PendingRoll(log, first_offset if is_too_far else log.end_offset)
