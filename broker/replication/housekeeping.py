"""Work on all replicas that comes round again and again: retention, expiry, flushing, checkpoints, removal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.replication.many_replicas import in_chunks
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.sync_threads import SyncThreads
from tidemark.storage import LogDirectory, StorageError

log = logging.getLogger(__name__)


def _nothing(_path: str, _error: BaseException) -> None: ...


class Housekeeping:
    def __init__(
        self,
        table: ReplicaTable,
        threads: SyncThreads,
        *,
        suspect_disk: Callable[[str, BaseException], None] = _nothing,
    ) -> None:
        """`suspect_disk(path, error)` finds out whether a disk has failed."""
        self._suspect_disk = suspect_disk
        self._table = table
        self._threads = threads
        self._written: dict[str, dict[tuple[str, int], int]] = {}  # high watermarks, by directory

    def apply_retention(self, replicas: Iterable[Replica]) -> None:
        now_ms = self._table.now_ms()
        for replica in _at_rest(replicas):
            with self._reported("retention", replica):
                replica.log.apply_retention(now_ms, high_watermark=replica.high_watermark, later=True)

    def expire_producers(self, replicas: Iterable[Replica]) -> None:
        now_ms = self._table.now_ms()
        for replica in _at_rest(replicas):
            with self._reported("expiry of producers", replica):
                replica.log.expire_producers(now_ms)

    def flush_due(self, replicas: Iterable[Replica]) -> None:
        """Sync what has waited long enough."""
        now_ms = self._table.now_ms()
        for replica in _at_rest(replicas):
            replica.flush_if_due(now_ms)

    def remove_deleted(self) -> None:
        """Unlink what is due, off the event loop: for a large file that takes long."""
        now_ms = self._table.now_ms()
        for directory in self._table.directories:
            if (work := directory.take_deleted(now_ms)) is not None:
                self._threads.of(directory).submit(work).add_done_callback(
                    partial(self._report, "removing deleted files from", directory.path, asyncio.get_running_loop())
                )

    def checkpoint(self) -> Deferred[None]:
        """Write how far the logs are synced and where they start, off the event loop: each file is synced. Resolved
        when the files are on disk (or could not be written, which is logged)."""
        writes = []
        for directory in self._table.directories:
            writing = self._threads.of(directory).submit(directory.write_checkpoints, {})
            writing.add_done_callback(
                partial(self._report, "writing the checkpoints of", directory.path, asyncio.get_running_loop())
            )
            writes.append(asyncio.wrap_future(writing))
        written: Deferred[None] = Deferred()
        asyncio.gather(*writes, return_exceptions=True).add_done_callback(lambda _: written.resolve(None))
        return written

    async def checkpoint_high_watermarks(self) -> None:
        """Off the event loop: it comes every few seconds, and ends with a sync."""
        await in_chunks(self._table, self._note_high_watermarks)
        await asyncio.gather(*map(self._checkpoint_high_watermarks, list(self._table.directories)))

    def _note_high_watermarks(self, replicas: Sequence[Replica]) -> None:
        """Here and not by the thread, which may come to it when a partition is deleted already."""
        for directory in self._table.directories:
            directory.high_watermarks.update(self.high_watermarks(directory, _at_rest(replicas)))

    def forget_replicated(self, replicas: Iterable[Replica]) -> None:
        """Let go of what logs remember only until it is committed."""
        for replica in _at_rest(replicas):
            replica.log.producer_states.forget_replicated(replica.high_watermark)

    async def _checkpoint_high_watermarks(self, directory: LogDirectory) -> None:
        known = dict(directory.high_watermarks)
        if known == self._written.get(directory.path):
            return  # an idle node leaves the disk alone
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._threads.of(directory), directory.write_high_watermarks)
            self._written[directory.path] = known
        except OSError as error:
            log.error("writing the high watermarks of %s failed: %s", directory.path, error)
            self._suspect_disk(directory.path, error)

    @contextmanager
    def _reported(self, work: str, replica: Replica) -> Iterator[None]:
        """One partition's trouble does not keep the others from their turn."""
        try:
            yield
        except (OSError, StorageError) as error:
            log.error("%s of %s-%d failed: %s", work, replica.topic, replica.index, error)
            self._suspect_disk(replica.log.directory, error)

    def _report(self, work: str, directory: str, loop: asyncio.AbstractEventLoop, done: Future[None]) -> None:
        """Called on the thread that did the work."""
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("%s %s failed: %s", work, directory, error)
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._suspect_disk, directory, error)

    def high_watermarks(
        self, directory: LogDirectory, replicas: Iterable[Replica] | None = None
    ) -> dict[tuple[str, int], int]:
        """Of these replicas, or of all."""
        replicas, logs = self._table if replicas is None else replicas, directory.logs
        places = (((each.topic, each.index), each) for each in replicas)
        # The log itself, and not just one in its place: a topic may have been deleted and made anew meanwhile.
        return {place: each.high_watermark for place, each in places if logs.get(place) is each.log}


def _at_rest(replicas: Iterable[Replica]) -> Iterator[Replica]:
    """Without those that are being truncated: they have their turn the next time."""
    return (each for each in replicas if not each.is_truncating)
