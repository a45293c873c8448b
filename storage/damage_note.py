"""A note, beside a log that was taken offline for damage, of what was found: the next start looks there again.

Without it a restart would serve the log once more: after a stop only what lies past the recovery point is read. The
note goes with the damage: when the log is fetched anew, its directory is another; after a repair nothing is found.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace

from tidemark.storage import names
from tidemark.storage.checking import Finding, Known, SegmentFile, check_segments
from tidemark.storage.errors import CorruptLog
from tidemark.storage.files import Files
from tidemark.storage.scrubbing.mending import can_be_mended

_logger = logging.getLogger(__name__)

NAME = "tidemark.damage"


def write(files: Files, directory: str, finding: Finding, known: Known) -> None:
    """`known`: what was known of the segment when it was found."""
    note = {
        "base_offset": finding.base_offset,
        "end_offset": known.end_offset,
        "following": known.following,
        "compacted": known.compacted,
        "found": str(finding),
    }
    files.replace(os.path.join(directory, NAME), json.dumps(note).encode(), sync=True)


def check(files: Files, directory: str) -> None:
    """Raises CorruptLog if what was noted is still so. A note that cannot be read, or is true no more, is removed."""
    path = os.path.join(directory, NAME)
    finding = _look_again(files, directory, path)
    if finding is None:
        files.remove(path)
        return
    raise CorruptLog(path=finding.path, position=finding.position, reason=finding.reason)


def _look_again(files: Files, directory: str, path: str) -> Finding | None:
    try:
        note = json.loads(files.read_all(path))
        base_offset = int(note["base_offset"])
        known = Known(compacted=bool(note["compacted"]))
        if note["end_offset"] is not None:
            known = replace(known, end_offset=int(note["end_offset"]))
        if note["following"] is not None:
            known = replace(known, following=int(note["following"]))
        size = files.size(os.path.join(directory, names.file_name(base_offset, names.LOG)))
    except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
        _logger.warning("%s says nothing that can be checked, and is removed: %s", path, error)
        return None
    segment = SegmentFile(base_offset=base_offset, size=size)
    for step in check_segments(files, directory, [segment], known):
        if isinstance(step, Finding) and not can_be_mended(step):
            return step
    return None
