"""The files of the cleaning process: who changes them, and past what they are read and written.

The process runs when nothing else wants to (`worker`). Whoever changes files holds locks of the file system in between,
its journal's for example: kept from running in such a moment, it would keep the broker from writing. So a thread, which
has a share of its own, does that part.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidemark.direct_io import DirectReader, DirectWriter
from tidemark.environment import new_executor
from tidemark.storage.files import Buffer, Files, OpenFile

P = ParamSpec("P")
T = TypeVar("T")

WRITE_BYTES = 256 << 10  # at a time: a tenth of a millisecond


class CleanerFiles(Files):
    """One file at a time is made and filled: the log of a cleaned segment. It goes where its source came from: through
    the page cache, or past it."""

    def __init__(self) -> None:
        """The thread has the priority that the caller has now."""
        super().__init__()
        self._thread = new_executor(1, name="write")
        self._call(os.getpid)  # so that it begins
        self._reader = DirectReader()
        self._new_fd: int | None = None
        self._writer: DirectWriter | None = None

    def _call(self, work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        return self._thread.submit(work, *args, **options).result()

    def read_window(self, fd: int, *, position: int, length: int) -> Buffer:
        data = self._reader.pread(fd, length, position)
        return data if len(data) == length else super().read_range(fd, position=position, length=length)

    def open_data(self, path: str, *, create: bool = False) -> OpenFile:
        file = super().open_data(path, create=create)
        if create:
            self._new_fd, self._writer = file.fileno(), None
        return file

    def write(self, fd: int, data: Buffer) -> int:
        if fd == self._new_fd:  # its first bytes decide
            self._new_fd, self._writer = None, DirectWriter(fd) if self._reader.was_direct else None
        if self._writer is not None and fd == self._writer.fd:
            return self._call(self._writer.write, data)
        return self._call(os.write, fd, memoryview(data)[:WRITE_BYTES])

    def fdatasync(self, fd: int) -> None:
        if self._writer is not None and fd == self._writer.fd:
            self._call(self._writer.finish)
            self._writer = None
        self._call(super().fdatasync, fd)

    def start_writeback(self, fd: int, *, position: int, length: int) -> None:
        if self._writer is None:
            self._call(super().start_writeback, fd, position=position, length=length)

    def open_descriptor(self, path: str, flags: int) -> int:
        fd = self._call(super().open_descriptor, path, flags)
        if self._writer is not None and fd == self._writer.fd:  # of a segment that was given up
            self._writer = None
        if fd == self._new_fd:  # of a segment that nothing was left of
            self._new_fd = None
        return fd

    def remove(self, path: str) -> None:
        self._call(super().remove, path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self._call(super().set_modified, path, modified_ms)
