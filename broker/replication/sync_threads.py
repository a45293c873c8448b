"""Threads that wait for disks: each log directory has its own, so that one that hangs holds up no other."""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import Final

from tidemark.environment import new_executor
from tidemark.storage import Log, LogDirectory

PER_DIRECTORY: Final = 4  # concurrent fdatasyncs; more only queue up in the device


class SyncThreads:
    def __init__(self) -> None:
        self._by_path: dict[str, Executor] = {}

    def of(self, directory: LogDirectory) -> Executor:
        return self._at(directory.path)

    def of_log(self, log: Log) -> Executor:
        return self._at(os.path.dirname(log.directory))

    def _at(self, path: str) -> Executor:
        if path not in self._by_path:
            self._by_path[path] = new_executor(PER_DIRECTORY, name="sync")
        return self._by_path[path]

    def shutdown(self) -> None:
        """Returns when all that was begun is done."""
        for threads in self._by_path.values():
            threads.shutdown(wait=True)
