"""The one door to the file system.

Every byte that storage/, raft/ and broker/ read or write passes through a `Files`, so that a test can hand in one that
fills up, tears a write or forgets a sync, and a simulation a disk that exists in memory only. Hot paths bind
`files.write` once: it is `os.write` itself, so the door costs nothing.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, Protocol, TypeAlias

from tidemark import portable

Buffer: TypeAlias = bytes | bytearray | memoryview


class OpenFile(Protocol):
    """What storage keeps of an open file. The descriptor closes when the last reference goes."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Up to `length` bytes; waits for the disk if they are not in memory."""

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills a buffer, and returns how many bytes there were."""

    def read_cached_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Fills a buffer; raises BlockingIOError instead of waiting for the disk."""

    def is_cached(self, *, position: int, length: int, strictly: bool = True) -> bool:
        """Whether reading these bytes would not wait for the disk, as far as the system can say."""

    def load(self, *, position: int, length: int) -> None:
        """Brings a range into memory, and waits for the disk: for a thread."""

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Sends a range to a socket, as `os.sendfile` does."""


# Partitions' logs take so many of the process's descriptors: clients can connect, and checkpoints be written, however
# many partitions there are.
LOGS_SHARE: Final = 0.875
COSTLY_BYTES: Final = 8 << 20


def _is_costly_to_close(fd: int) -> bool:
    """Whether this frees the blocks of a large file, which has no name any more: with `discard`, tenths of a second."""
    found = os.fstat(fd)
    return found.st_nlink == 0 and found.st_blocks * 512 > COSTLY_BYTES


def _close_on_a_thread(fd: int) -> None:
    """Does not wait until the thread runs, as `threading.Thread` does: at the end of the process it never would."""
    try:
        start_new_thread(os.close, (fd,))
    except RuntimeError:  # the system gives us no thread
        os.close(fd)


class Reservation:
    """Blocks that a thread reserves for one file, until it is ended: then it waits for the thread, or that comes too
    late and does nothing."""

    __slots__ = ("_is_over", "_lock")

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._is_over = False

    def reserve_and_close(self, fd: int, position: int, length: int) -> None:
        try:
            with self._lock, suppress(OSError):
                if not self._is_over:
                    portable.reserve_blocks(fd, position=position, length=length)
        finally:
            os.close(fd)

    def end(self) -> None:
        with self._lock:
            self._is_over = True


class DataFile(io.FileIO):
    """An open file that may be dropped without ceremony.

    A FileSlice on its way to a socket keeps its file alive; when the last slice goes, so does the descriptor. That is
    by design, so dropping one is no leak and raises no ResourceWarning.
    """

    def __del__(self) -> None:
        if not self.closed and _is_costly_to_close(self.fileno()):  # of a deleted segment, which had a slow reader
            _close_on_a_thread(os.dup(self.fileno()))
        self.close()

    def read_at(self, position: int, length: int) -> bytes:
        return os.pread(self.fileno(), length, position)

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        return portable.read_into(self.fileno(), buffer, position)

    def read_cached_into(self, buffer: bytearray | memoryview, position: int) -> int:
        return portable.read_cached_into(self.fileno(), buffer, position)

    def is_cached(self, *, position: int, length: int, strictly: bool = True) -> bool:
        return portable.is_cached(self.fileno(), position=position, length=length, strictly=strictly)

    def load(self, *, position: int, length: int) -> None:
        portable.load_pages(self.fileno(), position=position, length=length)

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        return portable.send_file(socket_fd, self.fileno(), position, length)


class Files:
    """The real file system."""

    write: Callable[[int, Buffer], int] = staticmethod(os.write)
    pread: Callable[[int, int, int], bytes] = staticmethod(os.pread)
    pwrite: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    read_cached: Callable[[int, int, int], bytes] = staticmethod(portable.read_cached)
    fdatasync: Callable[[int], None] = staticmethod(portable.sync_data)
    fsync: Callable[[int], None] = staticmethod(portable.sync_all)
    close: Callable[[int], None] = staticmethod(os.close)

    def __init__(self) -> None:
        self.locked: set[str] = set()  # the lock files that this process holds

    truncate: Callable[[int, int], None] = staticmethod(os.ftruncate)

    def open_data(self, path: str, *, create: bool = False) -> OpenFile:
        """Opens a file to read anywhere and append: after a truncation the next write lands at the new end."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return DataFile(self.open_descriptor(path, flags), "r+")

    def open_to_read(self, path: str) -> OpenFile:
        """As `open_data`, also where nothing may be written."""
        return DataFile(self.open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC), "r")

    def open_again(self, fd: int) -> OpenFile:
        """The same open file, for a reader that outlives its owner."""
        return DataFile(os.dup(fd), "r")

    def open_descriptor(self, path: str, flags: int) -> int:
        return os.open(path, flags, 0o644)

    def is_scarce(self, fd: int) -> bool:
        """Whether a log must do without this descriptor: what remains is for others."""
        return portable.is_scarce(fd, share=LOGS_SHARE)

    def spare_count(self) -> int:
        """How many descriptors there are that logs must do without."""
        return int(portable.descriptor_limit() * (1 - LOGS_SHARE))

    def read_all(self, path: str) -> bytes:
        fd = self.open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self.read_range(fd, position=0, length=self.open_size(fd))
        finally:
            self.close(fd)

    def read_tail(self, path: str, length: int) -> bytes:
        """The last bytes of a file whose size is a multiple of `length`; nothing if it is not."""
        fd = self.open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = self.open_size(fd)
            return b"" if size % length or not size else self.read_range(fd, position=size - length, length=length)
        finally:
            self.close(fd)

    def read_range(self, fd: int, *, position: int, length: int) -> bytes:
        """Reads `length` bytes, fewer only where the file ends."""
        data = self.pread(fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length and (data := self.pread(fd, length - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_window(self, fd: int, *, position: int, length: int) -> Buffer:
        """As `read_range`, but what it returns may be overwritten by the next call: for readers of whole files."""
        return self.read_range(fd, position=position, length=length)

    def write_all(self, fd: int, data: Buffer) -> None:
        """A disk that fills up takes a part of the bytes first, and says why only when it is asked to take the rest."""
        view = memoryview(data)
        while view:
            written = self.write(fd, view)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            view = view[written:]

    def start_writeback(self, fd: int, *, position: int, length: int) -> None:
        """A hint: a sync will come, and would have to wait for all of it otherwise."""
        portable.start_writeback(fd, position=position, length=length)

    def reserve(self, fd: int, *, position: int, length: int, reservation: Reservation) -> None:
        """A hint: so much will be appended soon. It does not wait for the disk, and never fails."""
        with suppress(OSError, RuntimeError):  # no descriptor; no thread
            own = os.dup(fd)
            try:
                start_new_thread(reservation.reserve_and_close, (own, position, length))
            except RuntimeError:
                os.close(own)
                raise

    def append_to(self, path: str, data: Buffer) -> None:
        """Appends to a file that is not kept open (indexes)."""
        fd = self.open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        try:
            self.write_all(fd, data)
        finally:
            self.close(fd)

    def overwrite(self, path: str, data: Buffer) -> None:
        """Replaces a file's content without atomicity: for files that can be rebuilt."""
        fd = self.open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        try:
            # Not where there is nothing to cut off: ext4 takes a truncated file for one that replaces another, and
            # hands it to the disk when it is closed (auto_da_alloc), which may take long while the disk is busy.
            if self.open_size(fd):
                self.truncate(fd, 0)
            self.write_all(fd, data)
        finally:
            self.close(fd)

    def replace(self, path: str, data: Buffer, *, sync: bool) -> None:
        """Replaces a file so that a reader, or a crash, sees the old content or the new and never a mixture."""
        temporary = path + ".tmp"
        self.overwrite(temporary, data)
        if sync:
            self.sync_file(temporary)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def truncate_file(self, path: str, size: int) -> None:
        fd = self.open_descriptor(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            self.truncate(fd, size)
        finally:
            self.close(fd)

    def sync_file(self, path: str) -> None:
        fd = self.open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.fdatasync(fd)
        finally:
            self.close(fd)

    def sync_directory(self, path: str) -> None:
        fd = self.open_descriptor(path, os.O_RDONLY | portable.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            self.close(fd)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Removes a file; one that is gone already is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def make_directory(self, path: str) -> bool:
        """Creates a directory; false when it was there."""
        try:
            os.mkdir(path)
        except FileExistsError:
            return False
        return True

    def make_directories(self, path: str) -> None:
        """Creates a directory and those above it, as far as they are missing. They outlive a loss of power: what is
        synced in a directory later is lost if the directory itself is."""
        if self.exists(path):
            return
        above = os.path.dirname(os.path.abspath(path))
        self.make_directories(above)
        if self.make_directory(path):
            self.sync_directory(above)

    def try_lock(self, fd: int) -> bool:
        """Takes a POSIX record lock on a file, the kind that the JVM takes; false if another process has it."""
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def remove_directory(self, path: str) -> None:
        os.rmdir(path)

    def list(self, path: str) -> list[str]:
        return os.listdir(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def open_size(self, fd: int) -> int:
        """The size of an open file."""
        return os.fstat(fd).st_size

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def space(self, path: str) -> tuple[int, int]:
        """How many bytes the disk under `path` has, and how many of them are free."""
        found = os.statvfs(path)
        return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail

    def unwritten_share(self) -> float:
        """Of what may lie in memory before the system writes it out: from 1 on, who writes may have to wait."""
        return portable.unwritten_share()

    def is_read_only(self, path: str) -> bool:
        """Whether the file system under `path` may not be written to."""
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)

    def identity(self, path: str) -> tuple[int, int]:
        """Which file this is, and of which file system: another one if a volume was mounted, or is no longer."""
        found = os.stat(path)
        return found.st_dev, found.st_ino

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))


def directories_below(files: Files, path: str) -> Iterator[str]:
    """Names of the directories directly in `path`, sorted so that a run repeats."""
    return (name for name in sorted(files.list(path)) if files.is_directory(os.path.join(path, name)))


REAL_FILES = Files()
