"""Files that are going: segments that wait for slow readers, and directories of partitions that are no more."""

from __future__ import annotations

import errno
import os
from typing import Final

from tidemark.environment import random_bytes
from tidemark.storage import names
from tidemark.storage.files import Files

_DIRECTORY_NAME_MAX = 249
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class PendingDeletions:
    """Renamed files, each to be removed when its time has come."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[int, list[str]]] = []  # due at, in ms; paths

    def __bool__(self) -> bool:
        return bool(self._entries)

    def add(self, paths: list[str], *, due_ms: int) -> None:
        if paths:
            self._entries.append((due_ms, paths))

    def take_due(self, now_ms: int) -> list[str]:
        if not self._entries:
            return []
        due = [path for due_ms, paths in self._entries if due_ms <= now_ms for path in paths]
        self._entries = [entry for entry in self._entries if entry[0] > now_ms]
        return due

    def take_all(self) -> list[str]:
        entries, self._entries = self._entries, []
        return [path for _, paths in entries for path in paths]


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
