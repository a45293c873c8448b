"""What a read returns: a range of a file, for the caller to send."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark import portable
from tidemark.storage.files import OpenFile
from tidemark.storage.segment import Segment


@dataclass(slots=True)  # not frozen: that would triple the cost of making one, and every fetch makes some
class FileSlice:
    """Bytes of a segment. Holding the slice keeps the file open, even if the segment is deleted meanwhile."""

    file: OpenFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def is_cached(self) -> bool:
        """Whether sending it will not wait for the disk. About a microsecond per 64 KiB; for a reader that wants to
        move cold reads off the event loop. True where the system cannot say."""
        return portable.is_cached(self.file.fileno(), position=self.position, length=self.length)


def slice_segment(segment: Segment, *, start: int, end: int, limit_bytes: int, at_least_one: bool) -> list[FileSlice]:
    """The bytes start..end of a segment, cut to `limit_bytes` at a batch boundary."""
    length = end - start
    if length > limit_bytes:
        length = _limited(segment, start, limit_bytes, at_least_one=at_least_one)
    if length <= 0:
        return []
    return [FileSlice(segment.file or segment.open_file(), start, length)]


def _limited(segment: Segment, start: int, limit_bytes: int, *, at_least_one: bool) -> int:
    cut = segment.cut(start=start, limit=limit_bytes)
    if cut > start:
        return cut - start
    # No indexed batch starts within the limit, so there is at most an index interval of small ones, or one large one.
    end = segment.walk(start=start, limit=limit_bytes)
    if end == start and at_least_one:
        return segment.batch_size_at(start)
    return end - start
