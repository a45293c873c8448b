"""Bugs in what reaches the disk."""

from __future__ import annotations

import os
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.replication.followed import Followed
from tidemark.broker.replication.partition import Partition
from tidemark.files import Files
from tidemark.raft.journal import Journal
from tidemark.storage import directory
from tidemark.storage.directory import LogDirectory
from tidemark.storage.producers import Producers
from tidemark.storage.unsynced import Flush


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


def _everything_found_counts_as_synced() -> Any:
    """Defect 4: after a restart what is in the log counts as on disk."""
    leads, follows = Partition.__init__, Followed.__init__

    def lead(self: Any, **more: Any) -> None:
        leads(self, **more)
        self._flushed_end = self.log.end_offset

    def follow(self: Any, **more: Any) -> None:
        follows(self, **more)
        self._flushed_end = self.log.end_offset

    return _both(patch.object(Partition, "__init__", lead), patch.object(Followed, "__init__", follow))


def _any_directory_speaks_for_all() -> Any:
    """Defect 1: a node whose disk was replaced registers as cleanly stopped."""

    def clean_broker_epoch(directories: Any) -> int:
        return max(each.clean_epoch for each in directories)

    return _both(
        patch.object(directory, "clean_broker_epoch", clean_broker_epoch),
        patch("tidemark.broker.cluster_runtime.clean_broker_epoch", clean_broker_epoch),
    )


def _strays_stay() -> Any:
    """Defect 6: a deleted topic comes back with the disk's old names."""
    return patch.object(LogDirectory, "retire_strays", lambda self, is_assigned: [])


def _producers_are_forgotten() -> Any:
    return patch.object(Producers, "check", lambda self, header: None)


def _deleted_records_come_back() -> Any:
    write = LogDirectory._write

    def forgetful(self: Any, name: str, offsets: Any) -> None:
        write(self, name, {} if name.startswith("log-start") else offsets)

    return patch.object(LogDirectory, "_write", forgetful)


def _both(*patches: Any) -> Any:
    import contextlib

    stack = contextlib.ExitStack()
    for each in patches:
        stack.enter_context(each)
    return stack


BUGS: Final = {
    "directories-not-synced": Bug(patches=_directories_not_synced, faults=("power",), seeds=4),
    "journal-not-synced": Bug(patches=_journal_not_synced, faults=("power",), seeds=4),
    "renames-not-synced": Bug(patches=_renames_not_synced, faults=("power",), seeds=4),
    "flush-does-not-sync": Bug(patches=_flush_does_not_sync, faults=("blackout",), mode="synced", seeds=4),
    "what-is-found-counts-as-synced": Bug(
        patches=_everything_found_counts_as_synced, faults=("kills_then_blackout",), mode="synced", seeds=12
    ),
    "any-directory-speaks-for-all": Bug(
        patches=_any_directory_speaks_for_all, faults=("stop", "replaced_disk"), mode="unlucky", layout="two", seeds=12
    ),
    "strays-stay": Bug(patches=_strays_stay, faults=("power", "kill"), workloads=("admin",), mode="synced", seeds=8),
    "no-memory-of-producers": Bug(patches=_producers_are_forgotten, faults=("crash", "network"), seeds=8),
    "deleted-records-come-back": Bug(
        patches=_deleted_records_come_back, faults=("stop", "isolate"), workloads=("admin",), mode="synced", seeds=12
    ),
}
