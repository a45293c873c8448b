"""Blocks for what will be appended soon, so that appending to a log that grows quickly is cheap and hardly waits.

At most an eighth of what the segment holds is taken ahead, and never more than the segment may become. A kill may leave
that much behind, which later appends use; what is left when nothing more is written to the segment is given back.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tidemark.storage.files import Reservation
from tidemark.storage.segment import Segment

SHARE: Final = 8
AHEAD_BYTES_MIN: Final = 4 << 20  # for less it is not worth a thread
AHEAD_BYTES_MAX: Final = 16 << 20
LEFT_BYTES_MAX: Final = 1 << 20  # not worth the file system's work: what a last batch did not fit into, mostly


def reserve(segment: Segment, *, segment_bytes: int) -> None:
    """To be called every megabyte or so."""
    ahead = min(segment.size // SHARE, AHEAD_BYTES_MAX)
    if ahead < AHEAD_BYTES_MIN or segment.reserved_end - segment.size >= ahead // 2 or segment.fd < 0:
        return
    begin, end = max(segment.size, segment.reserved_end), min(segment.size + ahead, segment_bytes)
    if begin < end:
        segment.reservation = segment.reservation or Reservation()
        segment.files.reserve(segment.fd, position=begin, length=end - begin, reservation=segment.reservation)
        segment.reserved_end = end


def release(segment: Segment) -> None:
    """Nothing is being written to it, nor will be."""
    file = segment.file  # held: if the log is closed meanwhile, its descriptor must not become another file's
    if file is None or segment.reserved_end - segment.size <= LEFT_BYTES_MAX:
        return
    if segment.reservation is not None:
        segment.reservation.end()
    segment.reserved_end, segment.reservation = 0, None
    with suppress(OSError):
        if segment.files.open_size(file.fileno()) == segment.size:  # or it would be cut off
            segment.files.truncate(file.fileno(), segment.size)
