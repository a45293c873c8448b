"""A disk in memory, which knows what of it would survive a loss of power.

What was not synced may be lost, page by page; so may directory entries whose directory was not synced (new files,
renames, removals), the latest first. That is what POSIX allows, and more than most file systems do.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

PAGE: Final = 4096
SECTOR: Final = 512


class File:
    """Its bytes as a running system sees them, and what was on the disk in pages that were not synced since."""

    __slots__ = ("cold", "cuts", "data", "dirty", "durable_size", "modified_ns")

    def __init__(self) -> None:
        self.data = bytearray()
        self.cold: set[int] = set()  # pages that are on the disk and not in memory
        self.cuts = 0  # how often it was made shorter
        self.dirty: dict[int, bytes] = {}
        self.durable_size = 0
        self.modified_ns = 0

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        self._touch(min(position, len(self.data)), position + len(data))
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        self._touch(min(size, len(self.data)), max(size, len(self.data)))
        if size < len(self.data):
            self.cuts += 1
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def _touch(self, start: int, end: int) -> None:
        dirty, data = self.dirty, self.data
        if self.cold:
            self.load(start, end - start)
        for page in range(start // PAGE, -(-end // PAGE)):
            if page not in dirty:
                dirty[page] = bytes(data[page * PAGE : min((page + 1) * PAGE, self.durable_size)])

    def is_cold(self, position: int, length: int) -> bool:
        """Whether reading there waits for the disk."""
        last = min(position + length, len(self.data))
        return any(page in self.cold for page in range(position // PAGE, -(-last // PAGE)))

    def load(self, position: int, length: int) -> None:
        self.cold.difference_update(range(position // PAGE, -(-(position + length) // PAGE)))

    def leave_memory(self) -> None:
        """What is on the disk as it is here need not be kept."""
        self.cold = {*range(-(-len(self.data) // PAGE))} - self.dirty.keys()

    def restore(self, position: int, old: bytes, size: int) -> None:
        """A write or a cut that did not happen: what was there before it, and the size of the file then."""
        if size > len(self.data):
            self.cuts -= 1
        self.data[position : position + len(old)] = old
        del self.data[size:]

    def sync(self) -> None:
        self.dirty.clear()
        self.durable_size = len(self.data)

    def lose_page(self, lost: int) -> None:
        """The power fails now, and the system had written every page but this one, and the file's size."""
        old, start = self.dirty[lost], lost * PAGE
        self.data[start : start + PAGE] = old.ljust(min(PAGE, len(self.data) - start), b"\0")
        self.sync()

    def begin_sync(self) -> Callable[[], None]:
        """What is to be called when the sync ends: until then nothing of it counts as on the disk. If the file is cut
        meanwhile nobody relies on this sync: what was cut off must not come back by it."""
        data, size, cuts = self.data, len(self.data), self.cuts
        pages = {page: bytes(data[page * PAGE : (page + 1) * PAGE]) for page in self.dirty}

        def end() -> None:
            if self.cuts != cuts:
                return
            self.durable_size = size
            for page, content in pages.items():
                if page in self.dirty:
                    if self.data[page * PAGE : (page + 1) * PAGE] == content:
                        del self.dirty[page]
                    else:
                        self.dirty[page] = content  # written again meanwhile

        return end

    def lose_power(self, random: Random) -> None:
        """Each page that was not synced is there as it is, or as it was, or torn."""
        if not self.dirty:
            self.leave_memory()
            return
        size = self._size_left(random)
        for page, old in sorted(self.dirty.items()):
            start = page * PAGE
            new = bytes(self.data[start : start + PAGE])
            kept = random.choice((0, 0, PAGE, PAGE, random.randrange(0, PAGE, SECTOR)))
            content = (new[:kept] + old[kept:].ljust(0)) if kept else old
            if len(self.data) < start:
                self.data.extend(bytes(start - len(self.data)))
            self.data[start : start + PAGE] = content.ljust(min(PAGE, max(len(self.data) - start, len(content))), b"\0")
        if size <= len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))
        self.sync()
        self.leave_memory()

    def _size_left(self, random: Random) -> int:
        low, high = sorted((self.durable_size, len(self.data)))
        return random.choice((self.durable_size, len(self.data), random.randint(low, high)))


@dataclass(slots=True)
class Directory:
    entries: dict[str, File | Directory] = field(default_factory=dict)
    undo: list[Callable[[], None]] = field(default_factory=list)  # what was not synced, the latest last

    def put(self, name: str, entry: File | Directory) -> None:
        old = self.entries.get(name)
        self.entries[name] = entry
        self.undo.append(lambda: self._restore(name, old))

    def drop(self, name: str) -> File | Directory:
        old = self.entries.pop(name)
        self.undo.append(lambda: self._restore(name, old))
        return old

    def rename(self, source: str, target: str) -> None:
        moved, replaced = self.entries.pop(source), self.entries.get(target)
        self.entries[target] = moved

        def back() -> None:
            self._restore(target, replaced)
            self.entries[source] = moved

        self.undo.append(back)

    def _restore(self, name: str, old: File | Directory | None) -> None:
        if old is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = old

    def sync(self) -> None:
        self.undo.clear()

    def begin_sync(self) -> Callable[[], None]:
        changes = [*self.undo]

        def end() -> None:
            self.undo = [each for each in self.undo if each not in changes]

        return end

    def take_back_last(self) -> Callable[[], None]:
        """What is to be called if the latest change of names did not happen after all."""
        last = self.undo[-1]

        def take_back() -> None:
            if last in self.undo:
                self.undo.remove(last)
                last()

        return take_back

    def lose_power(self, random: Random) -> None:
        """A number of the latest changes of names did not happen; the rest did, in their order."""
        for _ in range(random.randint(0, len(self.undo))):
            self.undo.pop()()
        self.undo.clear()
        for name in sorted(self.entries):
            self.entries[name].lose_power(random)


class Disk:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.root = Directory()
        self.sync_seconds = 0.002
        self.read_seconds = 0.004  # of what is not in memory
        self.hangs_until = 0.0
        self.room_bytes: int | None = None  # None: more than anyone needs
        self.failing: frozenset[str] = frozenset()  # of "read", "write", "sync"
        self.failing_chance = 1.0
        self.replaced = 0  # how often
        self.dead: set[str] = set()  # paths of disks that answer nothing but EIO

    def lose_power(self) -> None:
        self.root.lose_power(self.random)

    def drop_caches(self) -> None:
        """As a system does that needs its memory for something else."""
        for _, file in self.files():
            file.leave_memory()

    def replace(self, path: str) -> None:
        """What is mounted there, by an empty one."""
        parent, name = self.parent_of(path)
        self.replaced += 1
        if name in parent.entries:
            parent.entries[name] = Directory()

    def check(self, what: str, path: str) -> None:
        if what in self.failing and self.random.random() < self.failing_chance:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.dead and any(path.startswith(each) for each in self.dead):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def take_room(self, wanted: int) -> int:
        """How many bytes of a write find room: all, or fewer, or ENOSPC."""
        if self.room_bytes is None:
            return wanted
        if wanted and not self.room_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(wanted, self.room_bytes)
        self.room_bytes -= taken
        return taken

    # Names

    def find(self, path: str) -> File | Directory:
        found: File | Directory = self.root
        for part in parts_of(path):
            if not isinstance(found, Directory) or part not in found.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            found = found.entries[part]
        return found

    def parent_of(self, path: str) -> tuple[Directory, str]:
        above, name = os.path.split(path.rstrip("/"))
        found = self.find(above)
        if not isinstance(found, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return found, name

    def files(self) -> Iterator[tuple[str, File]]:
        yield from _files_below(self.root, "")


def parts_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _files_below(directory: Directory, path: str) -> Iterator[tuple[str, File]]:
    for name, entry in sorted(directory.entries.items()):
        if isinstance(entry, Directory):
            yield from _files_below(entry, f"{path}/{name}")
        else:
            yield f"{path}/{name}", entry
