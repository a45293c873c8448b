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
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.storage import LogDirectory, StorageError, is_disk_failure

if TYPE_CHECKING:
    from tidemark.broker.replication.role_assignment import RoleAssignment

log = logging.getLogger(__name__)


class DirectoryFailures:
    def __init__(self, table: ReplicaTable, roles: RoleAssignment, executor: Executor) -> None:
        self._table = table
        self._roles = roles
        self._executor = executor
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
        """Looks at every directory, on a thread: a disk that hangs must not hold up the node."""
        loop = asyncio.get_running_loop()
        for directory in list(self._table.directories):
            try:
                await loop.run_in_executor(self._executor, directory.check)
            except (OSError, StorageError) as error:
                self._fail(directory, str(error))

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
