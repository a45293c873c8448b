"""The files of a simulated process, on its machine's disk. What is left of a dead process cannot write."""

from __future__ import annotations

import builtins
import errno
import io
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.files import Buffer, Files, OpenFile, Reservation
from tidemark.simulation.disk import Directory, File

if TYPE_CHECKING:
    from tidemark.simulation.process import Process

SPARE_FILES: Final = 1024


class ProcessIsDead(OSError):
    """What is left of a killed process tries to do something."""


class _Descriptor:
    __slots__ = ("appends", "entry", "path", "position")

    def __init__(self, entry: File | Directory, path: str, *, appends: bool) -> None:
        self.entry = entry
        self.path = path  # when it was opened
        self.appends = appends
        self.position = 0


class SimulatedFile:
    """An open file."""

    def __init__(self, files: SimulatedFiles, fd: int) -> None:
        self._files = files
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            self._files.forget(self._fd)

    def read_at(self, position: int, length: int) -> bytes:
        return self._files.pread(self._fd, length, position)

    def read_cached_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self._files.read_cached(self._fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self._files.pread(self._fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def is_cached(self, *, position: int, length: int, strictly: bool = True) -> bool:
        return self._files.is_cached(self._fd, length, position)

    def load(self, *, position: int, length: int) -> None:
        self._files.pread(self._fd, length, position)

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        raise io.UnsupportedOperation("a simulated socket has no descriptor: what is sent is read and written")


class SimulatedFiles(Files):
    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._disk = process.machine.disk
        self._open: dict[int, _Descriptor] = {}
        self._last_fd = 2  # numbers are not given twice, so that it does not matter when a file is forgotten

    def _check(self, what: str, path: str) -> None:
        if not self._process.is_alive:
            raise ProcessIsDead(errno.EBADF, "the process is dead")
        if self._disk.failing or self._disk.dead:
            self._disk.check(what, path)

    def _use(self, what: str, fd: int) -> _Descriptor:
        opened = self._open.get(fd) or self._entry(fd)
        if not self._process.is_alive or self._disk.failing or self._disk.dead:
            self._check(what, opened.path)
        return opened

    def _entry(self, fd: int) -> _Descriptor:
        try:
            return self._open[fd]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _file(self, fd: int) -> File:
        entry = self._entry(fd).entry
        assert isinstance(entry, File)
        return entry

    def _names_changed(self, directory: Directory) -> None:
        if (work := self._process.disk_work) is not None and work.can_be_interrupted:
            work.add_step(directory.take_back_last())

    def _bytes_change(self, file: File, position: int, size: int) -> None:
        """They are about to."""
        if (work := self._process.disk_work) is not None and work.can_be_interrupted:
            old = bytes(file.data[position : position + size])
            work.add_step(partial(file.restore, position, old, len(file.data)))

    # Open files

    def open_data(self, path: str, *, create: bool = False) -> OpenFile:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        return SimulatedFile(self, self.open_descriptor(path, flags))

    def open_to_read(self, path: str) -> OpenFile:
        return SimulatedFile(self, self.open_descriptor(path, os.O_RDONLY))

    def open_again(self, fd: int) -> OpenFile:
        opened = self._entry(fd)
        return SimulatedFile(self, self._add(opened.entry, opened.path, appends=opened.appends))

    def is_scarce(self, fd: int) -> bool:
        return False  # numbers say nothing here

    def spare_count(self) -> int:
        return SPARE_FILES  # whatever the machine allows on which this runs

    def open_descriptor(self, path: str, flags: int) -> int:
        self._check("open", path)
        try:
            entry = self._disk.find(path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            parent, name = self._disk.parent_of(path)
            entry = File()
            entry.modified_ns = self._process.wall_clock_ns()
            parent.put(name, entry)
            self._names_changed(parent)
        return self._add(entry, path, appends=bool(flags & os.O_APPEND))

    def _add(self, entry: File | Directory, path: str, *, appends: bool) -> int:
        self._last_fd += 1
        self._open[self._last_fd] = _Descriptor(entry, path, appends=appends)
        return self._last_fd

    def close(self, fd: int) -> None:
        if self._process.is_alive:
            self._entry(fd)
        self._open.pop(fd, None)

    def forget(self, fd: int) -> None:
        self._open.pop(fd, None)

    def write(self, fd: int, data: Buffer) -> int:
        opened = self._use("write", fd)
        file, disk = opened.entry, self._disk
        assert isinstance(file, File)
        position = len(file.data) if opened.appends else opened.position
        taken = len(data) if disk.room_bytes is None else disk.take_room(len(data))
        if self._process.disk_work is not None:
            self._bytes_change(file, position, taken)
        file.write(position, data if taken == len(data) else memoryview(data)[:taken])
        file.modified_ns = self._process.wall_clock_ns()
        opened.position = position + taken
        return taken

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._use("write", fd)
        file = self._file(fd)
        taken = self._disk.take_room(len(data))
        self._bytes_change(file, position, taken)
        file.write(position, memoryview(data)[:taken])
        return taken

    def pread(self, fd: int, length: int, position: int) -> bytes:
        file = self._use("read", fd).entry
        assert isinstance(file, File)
        if file.cold and file.is_cold(position, length):
            self._process.spend_on_disk(self._disk.read_seconds * (0.2 + 1.6 * self._disk.random.random()))
            file.load(position, length)
        return bytes(file.data[position : position + length])

    def read_cached(self, fd: int, length: int, position: int) -> bytes:
        """As preadv2 with RWF_NOWAIT."""
        file = self._use("read", fd).entry
        assert isinstance(file, File)
        if file.cold and file.is_cold(position, length):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return bytes(file.data[position : position + length])

    def is_cached(self, fd: int, length: int, position: int) -> bool:
        file = self._file(fd)
        return not (file.cold and file.is_cold(position, length))

    def truncate(self, fd: int, size: int) -> None:
        self._use("write", fd)
        file = self._file(fd)
        self._bytes_change(file, size, max(0, len(file.data) - size))
        file.truncate(size)

    def fdatasync(self, fd: int) -> None:
        opened = self._use("sync", fd)
        self._process.spend_on_disk(self._disk.sync_seconds * (0.2 + 1.6 * self._disk.random.random()))
        if (work := self._process.disk_work) is not None:
            work.add_sync(opened.entry.begin_sync(), after_seconds=self._process.disk_seconds)
        else:
            opened.entry.sync()

    fsync = fdatasync

    def start_writeback(self, fd: int, *, position: int, length: int) -> None:
        """A power cut decides what was written anyway."""

    def reserve(self, fd: int, *, position: int, length: int, reservation: Reservation) -> None:
        """Nothing can be seen of it."""

    def open_size(self, fd: int) -> int:
        return len(self._file(fd).data)

    def try_lock(self, fd: int) -> bool:
        return True

    # Names

    def rename(self, source: str, target: str) -> None:
        self._check("write", source)
        parent, name = self._disk.parent_of(source)
        other, new_name = self._disk.parent_of(target)
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        if parent is other:
            parent.rename(name, new_name)
        else:
            moved = parent.drop(name)
            self._names_changed(parent)
            other.put(new_name, moved)
        self._names_changed(other)

    def remove(self, path: str) -> None:
        self._check("write", path)
        try:
            parent, name = self._disk.parent_of(path)
        except FileNotFoundError:
            return
        if name in parent.entries:
            parent.drop(name)
            self._names_changed(parent)

    def make_directory(self, path: str) -> bool:
        self._check("write", path)
        parent, name = self._disk.parent_of(path)
        if name in parent.entries:
            return False
        parent.put(name, Directory())
        self._names_changed(parent)
        return True

    def remove_directory(self, path: str) -> None:
        self._check("write", path)
        parent, name = self._disk.parent_of(path)
        parent.drop(name)
        self._names_changed(parent)

    def list(self, path: str) -> builtins.list[str]:
        self._check("read", path)
        found = self._disk.find(path)
        assert isinstance(found, Directory)
        return [*found.entries]

    def is_directory(self, path: str) -> bool:
        try:
            return isinstance(self._disk.find(path), Directory)
        except FileNotFoundError:
            return False

    def exists(self, path: str) -> bool:
        try:
            self._disk.find(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        found = self._disk.find(path)
        return len(found.data) if isinstance(found, File) else 4096

    def space(self, path: str) -> tuple[int, int]:
        free = 1 << 40 if self._disk.room_bytes is None else self._disk.room_bytes
        return 1 << 40, free

    def unwritten_share(self) -> float:
        return 0.0

    def is_read_only(self, path: str) -> bool:
        self._check("read", path)
        self._disk.find(path)
        return False

    def identity(self, path: str) -> tuple[int, int]:
        """Only ever compared with itself."""
        return 0, id(self._disk.find(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        found = self._disk.find(path)
        if isinstance(found, File):
            found.modified_ns = modified_ms * 1_000_000

    def modified_ms(self, path: str) -> int:
        found = self._disk.find(path)
        return found.modified_ns // 1_000_000 if isinstance(found, File) else 0
