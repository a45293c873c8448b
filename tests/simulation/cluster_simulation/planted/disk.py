"""Bugs in what reaches the disk."""

from __future__ import annotations

import contextlib
import os
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from cluster_simulation.planted.bug import Bug
from tidemark.broker.metadata import directories
from tidemark.files import Files
from tidemark.raft.journal import Journal
from tidemark.storage import checkpoints, loading
from tidemark.storage.directory import LogDirectory
from tidemark.storage.epochs import EpochCache
from tidemark.storage.flush import Flush
from tidemark.storage.indexes import Indexes
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


def _what_a_restart_finds_counts_as_synced() -> Any:
    """Defect 4."""
    load = loading.load

    def trusting(*args: Any, **more: Any) -> Any:
        loaded = load(*args, **more)
        return replace(loaded, recovery_point=loaded.end_offset)

    return patch.object(loading, "load", trusting)


def _any_clean_mark_speaks_for_all() -> Any:
    """Defect 1: the disk beside the one with the mark may have been replaced. The controller learns of that a second
    way, from the directory that a broker has its replica in, so that is taken away, too."""

    def clean_broker_epoch(directories: Any) -> int:
        return max((-1 if each.clean_epoch is None else each.clean_epoch for each in directories), default=-1)

    stack = contextlib.ExitStack()
    stack.enter_context(patch("tidemark.broker.cluster_runtime.clean_broker_epoch", clean_broker_epoch))
    stack.enter_context(patch.object(directories, "_without_its_past", lambda partition, broker_id: partition))
    return stack


def _refused_logs_are_forgotten() -> Any:
    """Defect 3: a directory in which a log was refused is marked clean."""
    return patch.object(LogDirectory, "_has_unchecked_logs", lambda self: False)


def _strays_stay() -> Any:
    """Defect 6."""
    return patch.object(LogDirectory, "retire_strays", lambda self, is_assigned: [])


def _a_clean_stop_leaves_indexes() -> Any:
    """Where every record was synced, a clean stop syncs nothing."""
    return patch.object(Indexes, "changed", property(lambda self: False, lambda self, value: None))


def _log_starts_are_not_written() -> Any:
    write = LogDirectory._write

    def forgetful(self: Any, name: str, offsets: Any) -> None:
        write(self, name, {} if name == checkpoints.START_OFFSETS else offsets)

    return patch.object(LogDirectory, "_write", forgetful)


def _epochs_are_lost() -> Any:
    """Defect 5: a checkpoint that is empty after a crash counts as one without entries."""

    def load(cls: Any, files: Files, path: str) -> EpochCache:
        cache: EpochCache = cls(files, path)
        cache._is_new = not files.exists(path)
        cache.is_known = not cache._is_new
        cache._changed()
        cache.saved = cache.latest
        return cache

    return patch.object(EpochCache, "load", classmethod(load))


BUGS: Final = {
    "epochs-are-lost": Bug(
        patches=_epochs_are_lost,
        faults=("isolated_stop",),
        mode="cached",
        seeds=8,
    ),
    "found-counts-as-synced": Bug(
        patches=_what_a_restart_finds_counts_as_synced,
        faults=("unsynced_kills",),
        workloads=("pairs",),
        mode="synced",
        seeds=12,
    ),
    "any-clean-mark-speaks-for-all": Bug(
        patches=_any_clean_mark_speaks_for_all,
        faults=("rolling_replace",),
        mode="unlucky",
        layout="two",
        seeds=8,
    ),
    "refused-logs-are-forgotten": Bug(
        patches=_refused_logs_are_forgotten,
        faults=("damaged_restarts",),
        workloads=("pairs",),
        mode="unlucky",
        seeds=8,
    ),
    "a-clean-stop-leaves-indexes": Bug(
        patches=_a_clean_stop_leaves_indexes, faults=("stopped_power",), mode="synced", seeds=8
    ),
    "strays-stay": Bug(patches=_strays_stay, faults=("kill", "stop"), workloads=("topics",), seeds=8),
    "log-starts-are-not-written": Bug(
        patches=_log_starts_are_not_written, faults=("rolling_stop",), workloads=("admin",), seeds=8
    ),
    "directories-not-synced": Bug(patches=_directories_not_synced, faults=("power",), seeds=4),
    "journal-not-synced": Bug(patches=_journal_not_synced, faults=("power",), seeds=4),
    "renames-not-synced": Bug(patches=_renames_not_synced, faults=("power",), seeds=4),
    "flush-does-not-sync": Bug(patches=_flush_does_not_sync, faults=("blackout",), mode="synced", seeds=4),
    "no-memory-of-producers": Bug(patches=_producers_are_forgotten, faults=("crash", "network"), seeds=8),
}
