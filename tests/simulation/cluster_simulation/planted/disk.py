"""Bugs in what reaches the disk."""

from __future__ import annotations

import os
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.files import Files
from tidemark.raft.journal import Journal
from tidemark.storage.flush import Flush
from tidemark.storage.producers import Producers


def _directories_not_synced() -> Any:
    def make_directories(self: Files, path: str) -> None:
        if not self.exists(path):
            self.make_directories(os.path.dirname(path))
            self.make_directory(path)

    return patch.object(Files, "make_directories", make_directories)


def _journal_not_synced() -> Any:
    def write(self: Any, data: bytes) -> None:
        self._files.write_all(self._fd, data)
        self._size += len(data)

    return patch.object(Journal, "_write", write)


def _renames_not_synced() -> Any:
    def replace(self: Files, path: str, data: Any, *, sync: bool) -> None:
        self.overwrite(path + ".tmp", data)
        if sync:
            self.sync_file(path + ".tmp")
        self.rename(path + ".tmp", path)

    return patch.object(Files, "replace", replace)


def _flush_does_not_sync() -> Any:
    def call(self: Any) -> None:
        self.done = True

    return patch.object(Flush, "__call__", call)


def _producers_are_forgotten() -> Any:
    return patch.object(Producers, "check", lambda self, header: None)


BUGS: Final = {
    "directories-not-synced": Bug(patches=_directories_not_synced, faults=("power",), seeds=4),
    "journal-not-synced": Bug(patches=_journal_not_synced, faults=("power",), seeds=4),
    "renames-not-synced": Bug(patches=_renames_not_synced, faults=("power",), seeds=4),
    "flush-does-not-sync": Bug(patches=_flush_does_not_sync, faults=("blackout",), mode="synced", seeds=4),
    "no-memory-of-producers": Bug(patches=_producers_are_forgotten, faults=("crash", "network"), seeds=8),
}
