"""Which inactive segments may keep their file and indexes open: the ones read last, up to a limit."""

from __future__ import annotations

from collections import OrderedDict

from tidemark.storage.segment import Segment


class SegmentCache:
    """Shared by all logs of a directory, so that ten thousand partitions do not hold ten thousand old files open."""

    __slots__ = ("_limit", "_open")

    def __init__(self, *, limit: int = 256) -> None:
        self._limit = limit
        self._open: OrderedDict[Segment, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def touch(self, segment: Segment) -> None:
        """Called before an inactive segment is read."""
        opened = self._open
        if segment in opened:
            opened.move_to_end(segment)
            return
        opened[segment] = None
        if len(opened) > self._limit:
            opened.popitem(last=False)[0].release()

    def discard(self, segment: Segment) -> None:
        """The segment is gone, or active again."""
        self._open.pop(segment, None)
