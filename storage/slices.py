"""What a read returns: a range of a file, for the caller to send."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.storage.files import Files, OpenFile
from tidemark.storage.segment import Segment


@dataclass(slots=True)  # not frozen: that would triple the cost of making one, and every fetch makes some
class FileSlice:
    """Bytes of a segment. Holding the slice keeps the file open, even if the segment is deleted meanwhile."""

    file: OpenFile
    position: int
    length: int

    def __len__(self) -> int:
        return self.length

    def is_cached(self, *, bytes_max: int, strictly: bool = True) -> bool:
        """Whether sending its first `bytes_max` bytes will not wait for the disk. True where the system cannot say. If
        not `strictly`, what the disk is about to deliver counts too."""
        length = min(self.length, bytes_max)
        return self.file.is_cached(position=self.position, length=length, strictly=strictly)

    def load(self, *, bytes_max: int) -> None:
        """Brings its first `bytes_max` bytes into the page cache, and waits for the disk: for a thread."""
        length = min(self.length, bytes_max)
        self.file.load(position=self.position, length=length)


def slice_segment(
    segment: Segment, *, start: int, end: int, limit_bytes: int, at_least_one: bool, files: Files | None = None
) -> list[FileSlice]:
    """The bytes start..end of a segment, cut to `limit_bytes` at a batch boundary."""
    length = end - start
    if length > limit_bytes:
        length = _limited(segment, start, limit_bytes, at_least_one=at_least_one, files=files)
    if length <= 0:
        return []
    return [FileSlice(segment.file or segment.open_file(), start, length)]


def _limited(segment: Segment, start: int, limit_bytes: int, *, at_least_one: bool, files: Files | None) -> int:
    cut = segment.cut(start=start, limit=limit_bytes, files=files)
    if cut > start:
        return cut - start
    # No indexed batch starts within the limit, so there is at most an index interval of small ones, or one large one.
    end = segment.walk(start=start, limit=limit_bytes, files=files)
    if end == start and at_least_one:
        return segment.batch_size_at(start, files)
    return end - start
