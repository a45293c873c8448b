"""What an interrupted owner leaves in a log's directory: half-done deletions, half-done swaps, orphans."""

from __future__ import annotations

import os
from collections.abc import Iterable

from tidemark.storage import names
from tidemark.storage.files import Files
from tidemark.storage.scan import Damage, headers

_TEMPORARY = ".tmp"


def clear(files: Files, directory: str) -> list[str]:
    """Finishes or undoes what was under way. Returns the names of the files that remain."""
    found = sorted(files.list(directory))
    cleaned = [name for name in found if name.endswith(names.CLEANED)]
    first_cleaned = min((offset for name in cleaned if (offset := names.offset_of(name)) is not None), default=None)
    swaps = [name for name in found if name.endswith(names.SWAP)]
    # A swap beside a .cleaned file of the same or an earlier offset was being split and is not complete.
    undone = [
        name
        for name in swaps
        if first_cleaned is not None and (offset := names.offset_of(name)) is not None and offset >= first_cleaned
    ]
    # What is undone goes first: without the .cleaned file beside it, the next start would take the rest for complete.
    gone = dict.fromkeys((*undone, *cleaned, *(each for each in found if each.endswith((names.DELETED, _TEMPORARY)))))
    for name in gone:
        files.remove(os.path.join(directory, name))
    remaining = [name for name in found if name not in gone]
    complete = sorted(set(swaps) - set(undone))
    if complete:
        remaining = _finish_swaps(files, directory, complete, remaining)
    return _without_orphans(files, directory, remaining)


def _finish_swaps(files: Files, directory: str, swaps: list[str], found: list[str]) -> list[str]:
    """A .swap segment is complete and replaces the segments whose offsets it covers."""
    logs = [name for name in swaps if name.endswith(names.LOG + names.SWAP)]
    covered = [_offsets_in(files, directory, name) for name in logs]
    if covered:
        first, end = min(start for start, _ in covered), max(end for _, end in covered)
        for name in [name for name in found if not name.endswith(names.SWAP)]:
            offset = names.offset_of(name)
            if offset is not None and first <= offset < end and name.endswith(names.SEGMENT_SUFFIXES):
                files.remove(os.path.join(directory, name))
                found.remove(name)
    # The log comes first: while there is a .log.swap, what has its offset and no suffix counts as old, indexes too.
    for name in sorted(swaps, key=lambda each: not each.endswith(names.LOG + names.SWAP)):
        target = name.removesuffix(names.SWAP)
        files.rename(os.path.join(directory, name), os.path.join(directory, target))
        found.remove(name)
        found.append(target)
    return found


def _offsets_in(files: Files, directory: str, name: str) -> tuple[int, int]:
    path = os.path.join(directory, name)
    start = end = names.offset_of(name) or 0
    file = files.open_data(path)
    try:
        for _, header in headers(files, file.fileno(), position=0, end=files.size(path)):
            end = header.next_offset
    except Damage:
        return start, end  # loading the segment will say what is wrong with it
    finally:
        file.close()
    return start, end


def _without_orphans(files: Files, directory: str, found: Iterable[str]) -> list[str]:
    """Removes indexes whose log is gone: a deletion was interrupted between renaming the one and the other."""
    present = set(found)
    kept = []
    for name in sorted(present):
        offset = names.offset_of(name)
        is_index = name.endswith((names.OFFSET_INDEX, names.TIME_INDEX, names.ABORTED_INDEX))
        if is_index and offset is not None and names.file_name(offset, names.LOG) not in present:
            files.remove(os.path.join(directory, name))
        else:
            kept.append(name)
    return kept
