"""Files that are going: segments that wait for slow readers, and directories of partitions that are no more."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.environment import new_lock, random_bytes
from tidemark.storage import names
from tidemark.storage.files import Files

if TYPE_CHECKING:
    from tidemark.storage.segment import Segment

_logger = logging.getLogger(__name__)

_DIRECTORY_NAME_MAX = 249
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class PendingDeletions:
    """Files that are no more part of a log: each gets another name, and is removed when its time has come.

    A new name waits for the disk, too, if that is busy. So files may come here by the names that they have in the log
    (`add_live`), for another thread to set aside. Until then a kill brings them back: a log that is opened begins
    where it began, or a little earlier."""

    __slots__ = ("_aside", "_entries", "_is_over", "_live", "_renaming")

    def __init__(self) -> None:
        self._entries: list[tuple[int, list[str]]] = []  # due at, in ms; paths
        self._live: deque[tuple[int, str]] = deque()  # likewise, not renamed yet
        self._aside: deque[tuple[int, list[str]]] = deque()  # renamed by another thread since `take_due`
        self._renaming = new_lock()  # held for one name at a time
        self._is_over = False

    def __bool__(self) -> bool:
        return bool(self._entries or self._live or self._aside)

    def add(self, paths: list[str], *, due_ms: int) -> None:
        if paths:
            self._entries.append((due_ms, paths))

    def add_live(self, paths: Iterable[str], *, due_ms: int) -> None:
        """In the order in which they are to go."""
        self._live.extend((due_ms, path) for path in paths)

    @property
    def has_live(self) -> bool:
        return bool(self._live)

    def set_aside_all(self, files: Files) -> None:
        """For any thread. Stops at the first that cannot be renamed: it is tried again, and those behind it wait."""
        while self._set_aside_first(files):
            pass

    def _set_aside_first(self, files: Files) -> bool:
        with self._renaming:
            if self._is_over or not self._live:
                return False
            due_ms, path = self._live[0]
            self._aside.append((due_ms, set_aside(files, path)))
            self._live.popleft()
            return True

    def take_due(self, now_ms: int) -> list[str]:
        self._take_aside()
        if not self._entries:
            return []
        due = [path for due_ms, paths in self._entries if due_ms <= now_ms for path in paths]
        self._entries = [entry for entry in self._entries if entry[0] > now_ms]
        return due

    def take_all(self) -> list[str]:
        """Also what was not set aside; nothing is, from now on."""
        with self._renaming:
            self._is_over = True
        self._take_aside()
        paths = [path for _, paths in self._entries for path in paths]
        paths += [path for _, path in self._live]
        self._forget()
        return paths

    def end(self) -> None:
        """From now on nothing is renamed or removed: other files may get these names."""
        with self._renaming:
            self._is_over = True
        self._forget()

    def renamed_to(self, directory: str) -> None:
        """The log's directory has another name. Not while another thread sets files aside."""
        self._take_aside()
        moved = partial(_moved_to, directory)
        self._entries = [(due_ms, [*map(moved, paths)]) for due_ms, paths in self._entries]
        self._live = deque((due_ms, moved(path)) for due_ms, path in self._live)

    def _take_aside(self) -> None:
        while self._aside:
            due_ms, paths = self._aside.popleft()
            self.add(paths, due_ms=due_ms)

    def _forget(self) -> None:
        self._entries = []
        self._live.clear()
        self._aside.clear()


def _moved_to(directory: str, path: str) -> str:
    return os.path.join(directory, os.path.basename(path))


def set_aside(files: Files, path: str) -> list[str]:
    """Takes a file out of a log: it gets the suffix `.deleted`, since unlinking may have to wait for the disk. Returns
    its new path; nothing if it is gone already.

    A name takes room in the directory, and on a full disk there may be none: then the file goes at once."""
    try:
        files.rename(path, path + names.DELETED)
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        files.remove(path)
        return []
    return [path + names.DELETED]


def rename_for_deletion(segment: Segment, *, log_first: bool = False) -> list[str]:
    """Takes a segment out of its log: the files get the suffix `.deleted`. Returns their new paths.

    What can be made anew goes first: if one of these cannot be renamed, or the log itself, the segment stays and can be
    read. The aborted transactions go after the log: a segment without them would show what was aborted. `log_first`:
    where a failure takes the log offline anyway; a start finds no log without its indexes then."""
    files = segment.files
    segment.indexes.disown_files()
    renamed: list[str] = []
    try:
        suffixes = [names.OFFSET_INDEX, names.TIME_INDEX]
        suffixes.insert(0 if log_first else len(suffixes), names.LOG)
        for suffix in suffixes:
            renamed += set_aside(files, segment.path(suffix))
    except OSError:
        with suppress(OSError):
            for path in renamed:
                files.remove(path)
        raise
    if segment.has_aborts:
        renamed += _set_aborts_aside(files, segment.path(names.ABORTED_INDEX))
    return renamed


def _set_aborts_aside(files: Files, path: str) -> list[str]:
    """Or at least out of the way of another segment of this offset."""
    try:
        return set_aside(files, path)
    except OSError as error:
        _logger.warning("%s cannot be renamed: %s", path, error)
        files.remove(path)
        return []


def disowned_paths(segment: Segment) -> list[str]:
    """The files of a segment that is taken out of its log, in the order in which they are to get other names. The log
    first: a kill brings it back with its indexes, or a start removes them."""
    segment.indexes.disown_files()
    suffixes = [names.LOG, names.OFFSET_INDEX, names.TIME_INDEX]
    if segment.has_aborts:
        suffixes.append(names.ABORTED_INDEX)
    return [segment.path(suffix) for suffix in suffixes]


def retire_directory(files: Files, path: str, *, kind: str = names.DELETE_DIRECTORY) -> str:
    """Gives a partition's directory a name that no partition has. Returns its new path. The caller syncs the directory
    above, or the partition is back after a power cut."""
    parent, name = os.path.split(path)
    suffix = f".{random_bytes(16).hex()}{kind}"
    retired = os.path.join(parent, name[: _DIRECTORY_NAME_MAX - len(suffix)] + suffix)
    try:
        files.rename(path, retired)
    except OSError as error:
        if error.errno not in NO_ROOM or kind != names.DELETE_DIRECTORY:
            raise
        _remove_logs(files, path)  # what is deleted to make room must not fail for want of it
        files.rename(path, retired)
    return retired


def _remove_logs(files: Files, path: str) -> None:
    """Last first: whenever this is interrupted, a log without gaps remains."""
    for name in sorted(files.list(path), reverse=True):
        if name.endswith(names.LOG):
            files.remove(os.path.join(path, name))


def remove_directory(files: Files, path: str) -> None:
    """Removes a retired log's directory with the files in it."""
    for name in files.list(path):
        files.remove(os.path.join(path, name))
    files.remove_directory(path)
