"""Log directories that fail: each goes offline alone, and the node goes on with the others.

A disk is believed to have failed when the kernel says so (EIO, a read-only file system, a device that is gone) about
anything in it, or when a look at it once a second shows that its volume is no longer what was opened. A disk that is
full has not failed: it refuses writes until there is room.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.storage import LogDirectory, StorageError, is_disk_failure

if TYPE_CHECKING:
    from tidemark.broker.replication.role_assignment import RoleAssignment

log = logging.getLogger(__name__)

CHECK_SECONDS_MAX: Final = 1.0  # a look that takes longer goes on, and others do not wait for it


class DirectoryFailures:
    def __init__(self, table: ReplicaTable, roles: RoleAssignment, threads: SyncThreads) -> None:
        self._table = table
        self._roles = roles
        self._threads = threads
        self._under_way: dict[LogDirectory, asyncio.Task[None]] = {}
        self.failed_ids: list[bytes] = []  # of directories that worked when this node started
        self.on_failure: Callable[[], None] = lambda: None  # called when there is one more

    def suspect(self, path: str, error: BaseException) -> None:
        """There was trouble with this file or directory. If that means that the disk has failed, so be it."""
        if not is_disk_failure(error):
            return
        for directory in list(self._table.directories):
            if path == directory.path or path.startswith(directory.path + os.sep):
                # Not now: the caller may be in the middle of an append, and would find its partition gone.
                asyncio.get_running_loop().call_soon(self._fail, directory, str(error))

    async def check(self) -> None:
        """Looks at every directory, on threads: a disk that hangs must hold up neither the node nor the other looks."""
        for directory in list(self._table.directories):
            if directory not in self._under_way:
                self._under_way[directory] = asyncio.create_task(self._check(directory))
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=CHECK_SECONDS_MAX)

    async def _check(self, directory: LogDirectory) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads.of(directory), directory.check)
        except (OSError, StorageError) as error:
            self._fail(directory, str(error))
        finally:
            del self._under_way[directory]

    def _fail(self, directory: LogDirectory, reason: str) -> None:
        table = self._table
        if directory not in table.directories:
            return
        table.directories.remove(directory)
        table.offline_directories[directory.path] = reason
        log.error("log directory %s is offline, with %d partitions: %s", directory.path, len(directory.logs), reason)
        directory.fail(reason)
        self.failed_ids.append(directory.id)
        self._roles.directory_failed(directory, reason)
        self.on_failure()
