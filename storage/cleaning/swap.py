"""A cleaned segment takes the place of those that it was made from.

A row of renames, in Kafka's order: `.cleaned` becomes `.swap`; from then on the new segment counts, and a start that
finds it finishes what was begun. The old files become `.deleted`, `.swap` loses its suffix. File systems keep the order
of renames in a directory, so that a power cut leaves the old segments or the new one. Who reads the old files keeps
them open.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tidemark.storage import names
from tidemark.storage.cleaning.job import CleanedGroup, CleaningFailed
from tidemark.storage.deletion import NO_ROOM, rename_for_deletion
from tidemark.storage.files import Files
from tidemark.storage.segment import Segment

if TYPE_CHECKING:
    from tidemark.storage.log import Log


def swap(log: Log, cleaned: CleanedGroup) -> None:
    """Puts the segment in. Raises CleaningFailed, and changes nothing, if the log has changed since the cleaning began:
    some of its segments were deleted or truncated."""
    log.check_online()
    old = log.segments.consecutive(cleaned.replaced)
    if old is None or old[-1] is log.segments.active or cleaned.generation != log.generation:
        discard(log, cleaned)
        raise CleaningFailed(f"{log.directory}: its segments have changed since", is_passing=True)
    suffixes = _suffixes(log.files, log.directory, cleaned)
    try:
        _remove_strays(log, cleaned)
        _rename_all(log, cleaned, suffixes, source=names.CLEANED, target=names.SWAP)
    except OSError as error:
        _undo(log, cleaned)
        raise CleaningFailed(f"{log.directory}: {error}", is_passing=error.errno in NO_ROOM) from error
    try:
        due_ms = log.now_ms() + log.config.file_delete_delay_ms
        for segment in reversed(old):
            log.deletions.add(rename_for_deletion(segment, log_first=True), due_ms=due_ms)
            if segment.base_offset != cleaned.base_offset:
                log.deletions.add(log.snapshots.rename_for_deletion(segment.base_offset), due_ms=due_ms)
        _rename_all(log, cleaned, suffixes[::-1], source=names.SWAP, target="")
    except OSError as error:
        log.fail(f"its cleaned segment {cleaned.base_offset} cannot be put in place: {error}")
        log.check_online()
    _replace(log, old, cleaned)


def _replace(log: Log, old: list[Segment], cleaned: CleanedGroup) -> None:
    new = Segment(
        log.files,
        log.directory,
        cleaned.base_offset,
        size=cleaned.size,
        created_ms=old[0].created_ms,
        aborts=cleaned.has_aborts,
    )
    log.segments.replace(old, new)
    for segment in old:
        log.unsynced.forget_segment(segment)
        segment.release()
    log.unsynced.note_new_segment(after=None)


def _remove_strays(log: Log, cleaned: CleanedGroup) -> None:
    """What a cleaning that was given up has left. A start that finds a `.swap` beside a `.cleaned` file of an earlier
    offset takes it for half of a segment that was being split, and throws it away (Kafka's rule); one that finds a
    `.swap` without a `.cleaned` file takes it for complete. So those go first."""
    found = log.files.list(log.directory)
    strays = [name for name in found if name.endswith(names.SWAP)]
    strays += [name for name in found if name.endswith(names.CLEANED) and _is_before(name, cleaned.base_offset)]
    for name in strays:
        log.files.remove(os.path.join(log.directory, name))


def _is_before(name: str, base_offset: int) -> bool:
    offset = names.offset_of(name)
    return offset is not None and offset < base_offset


def _undo(log: Log, cleaned: CleanedGroup) -> None:
    """Nothing has begun, for the log is not `.swap`. As far as the disk allows: a start does the same. In that order:
    an index that is `.swap`, with no `.cleaned` file beside it, a start would put in place."""
    with contextlib.suppress(OSError):
        discard(log, cleaned, suffix=names.SWAP)
        discard(log, cleaned)


def _rename_all(log: Log, cleaned: CleanedGroup, suffixes: list[str], *, source: str, target: str) -> None:
    stem = os.path.join(log.directory, names.file_name(cleaned.base_offset, ""))
    for suffix in suffixes:
        log.files.rename(stem + suffix + source, stem + suffix + target)


def _suffixes(files: Files, directory: str, cleaned: CleanedGroup) -> list[str]:
    """In the order in which the files become `.swap`: the log last, since that is what a start goes by. They lose that
    suffix in the opposite order: what has none, beside a `.log.swap`, a start takes for the old segment's."""
    suffixes = [names.OFFSET_INDEX, names.TIME_INDEX, names.LOG]
    if cleaned.has_aborts:
        suffixes.insert(0, names.ABORTED_INDEX)
    path = os.path.join(directory, names.file_name(cleaned.base_offset, names.LOG + names.CLEANED))
    try:
        size = files.size(path)
    except OSError as error:
        raise CleaningFailed(f"{path}: {error}") from error
    if size != cleaned.size:
        raise CleaningFailed(f"{path} has {size} bytes, not {cleaned.size}")
    return suffixes


def discard(log: Log, cleaned: CleanedGroup, *, suffix: str = names.CLEANED) -> None:
    """Removes what was cleaned in vain."""
    for each in names.SEGMENT_SUFFIXES:
        log.files.remove(os.path.join(log.directory, names.file_name(cleaned.base_offset, each + suffix)))
