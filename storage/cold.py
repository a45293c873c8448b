"""Reads on the event loop must not wait for the disk. What is not in memory is read in three steps:

log.read(…, wait=False)    # on the log's thread: raises ColdRead
cold.load()                # anywhere: reads what was missing, touches no state of the log
cold.finish()              # on the log's thread; then read again
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tidemark.storage.errors import StorageError
from tidemark.storage.files import Files, OpenFile

if TYPE_CHECKING:
    from tidemark.storage.segment import Segment


class ColdRead(Exception):
    """Something that a read needs is not in memory."""

    def load(self) -> None:
        """For any thread. What fails here, fails again when it is read, and is reported then."""

    def finish(self) -> None:
        """On the log's thread, after `load`."""


class ColdBytes(ColdRead):
    def __init__(self, files: Files, fd: int, *, position: int, length: int) -> None:
        super().__init__(f"{length} bytes at {position} are not in the page cache")
        self._position = position
        self._length = length
        self._file: OpenFile | None = None
        with contextlib.suppress(OSError):
            self._file = files.open_again(fd)  # the segment may be closed before it is loaded

    def load(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.load(position=self._position, length=self._length)


class ColdSegment(ColdRead):
    """A segment whose file and indexes are to be opened first."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"the segment at {segment.base_offset} is not open")
        self._segment = segment
        self._copy = segment.copy()

    def load(self) -> None:
        with contextlib.suppress(OSError, StorageError):
            self._copy.open()

    def finish(self) -> None:
        self._segment.adopt(self._copy)


class CachedFiles(Files):
    """Reads only what is in the page cache; ColdRead for the rest."""

    def __init__(self, files: Files) -> None:
        super().__init__()
        self._files = files

    def pread(self, fd: int, length: int, position: int) -> bytes:
        try:
            return self._files.read_cached(fd, length, position)
        except BlockingIOError:
            raise ColdBytes(self._files, fd, position=position, length=length) from None
