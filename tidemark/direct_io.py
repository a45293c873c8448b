"""Reads and writes of whole logs that leave the page cache as it is.

A cleaning reads everything, and writes most of it anew. What is in the page cache is read from there, and what becomes
of it is written there. What is not would push out what consumers read; and copying it through fresh pages costs more
than the disk's own way from and to a buffer that is used again and again (on a virtual machine, up to 5 s of CPU per
GB, where the host has to find memory for every page).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Iterator
from typing import Final

from tidemark import portable
from tidemark.files import Buffer

ALIGNMENT: Final = 4096  # of position, length and memory: enough for every disk
READ_BYTES_MIN: Final = 64 << 10  # a smaller read is not worth the trouble
WRITE_BYTES: Final = 1 << 20  # at a time
LARGE_PAGE_BYTES: Final = 2 << 20


@contextlib.contextmanager
def _directly(fd: int) -> Iterator[None]:
    """EINVAL where the file system cannot do it. The descriptor must not be used by others meanwhile."""
    assert portable.O_DIRECT is not None
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | portable.O_DIRECT)
    try:
        yield
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)


class DirectReader:
    """One for each thread that reads."""

    def __init__(self) -> None:
        self._buffer = _new_buffer(ALIGNMENT)
        self._is_possible = portable.O_DIRECT is not None
        self.was_direct = False  # the last read of some size

    def pread(self, fd: int, length: int, position: int) -> Buffer:
        """As `os.pread`, but what it returns is there until the next call only."""
        if not self._is_possible or length < READ_BYTES_MIN:
            return os.pread(fd, length, position)
        self.was_direct = not portable.is_cached(fd, position=position, length=length, strictly=False)
        return (self.was_direct and self._read(fd, length, position)) or os.pread(fd, length, position)

    def _read(self, fd: int, length: int, position: int) -> Buffer:
        """Nothing at the end of the file, and where the file system cannot do it."""
        begin = position % ALIGNMENT
        size = begin + length
        size += -size % ALIGNMENT
        if len(self._buffer) < size:
            self._buffer = _new_buffer(size)
        view = memoryview(self._buffer)
        try:
            with _directly(fd):
                got = os.preadv(fd, [view[:size]], position - begin)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._is_possible = self.was_direct = False
            return b""
        return view[begin : max(begin, min(got, begin + length))]


def _new_buffer(size: int) -> mmap.mmap:
    """In large pages, if it is large: the kernel has to hold each page while the disk writes to it."""
    buffer = mmap.mmap(-1, size)
    if size >= LARGE_PAGE_BYTES and portable.MADV_HUGEPAGE is not None:
        buffer.madvise(portable.MADV_HUGEPAGE)
    return buffer


class DirectWriter:
    """Appends to a new file. What is written last is in the file only after `finish`."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._buffer = _new_buffer(WRITE_BYTES)
        self._filled = 0
        self._is_possible = portable.O_DIRECT is not None

    def write(self, data: Buffer) -> int:
        """As much as there is room for, at least a byte of it."""
        if self._filled == WRITE_BYTES:
            self._flush()
        taken = min(len(data), WRITE_BYTES - self._filled)
        self._buffer[self._filled : self._filled + taken] = memoryview(data)[:taken]
        self._filled += taken
        return taken

    def finish(self) -> None:
        self._flush()
        self._buffer.close()

    def _flush(self) -> None:
        """Whole blocks directly, the rest of the last one as usual."""
        with memoryview(self._buffer) as view:
            done = 0
            while self._is_possible and done < self._filled - self._filled % ALIGNMENT:
                with view[done : self._filled - self._filled % ALIGNMENT] as blocks:
                    done += self._write_blocks(blocks)
            while done < self._filled:
                with view[done : self._filled] as rest:
                    done += _written(os.write(self.fd, rest))
        self._filled = 0

    def _write_blocks(self, blocks: memoryview) -> int:
        try:
            with _directly(self.fd):
                return _written(os.write(self.fd, blocks))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._is_possible = False
            return 0


def _written(count: int) -> int:
    if not count:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return count
