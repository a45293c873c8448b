"""Group commit: one fdatasync, off the event loop, for every append that waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.storage import Flush, Log, StorageError

log = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.1  # after a sync that could not begin, or while the log is not to be touched
STALLED_SECONDS: Final = 5.0  # a sync that takes longer: as long as a broker may be silent by default, and a bit


class GroupCommit:
    """Syncs one log. While a sync runs, later appends gather; the next sync covers all of them."""

    __slots__ = (
        "_executor",
        "_failed",
        "_flushed",
        "_is_held",
        "_is_retrying",
        "_log",
        "_running",
        "_stalled",
        "_started_at",
        "_traffic",
        "_wanted",
    )

    def __init__(
        self,
        log: Log,
        executor: Executor,
        *,
        flushed: Callable[[int], None],
        failed: Callable[[BaseException], None],
        stalled: Callable[[], None] = lambda: None,
        is_held: Callable[[], bool] = lambda: False,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`stalled` is called when a sync takes very long, and again while it does. It may still end well. `is_held`:
        whether the log is not to be touched now."""
        self._log = log
        self._executor = executor
        self._flushed = flushed
        self._failed = failed
        self._stalled = stalled
        self._is_held = is_held
        self._traffic = traffic or TopicTraffic()
        self._started_at = 0.0
        self._wanted = -1
        self._running = False
        self._is_retrying = False

    def use_threads(self, executor: Executor) -> None:
        """From the next sync on."""
        self._executor = executor

    def request(self) -> None:
        """Everything appended so far is to be on disk; `flushed(offset)` is called when it is."""
        self._wanted = self._log.end_offset
        if not self._running:
            self._start()

    def _start(self) -> None:
        self._running = True
        if self._is_held():
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._start)
            return
        try:
            flush = self._log.begin_flush()
        except OSError as error:  # no descriptor is free, say: nothing was synced, and nothing is lost
            self._retry(error)
            return
        except StorageError as error:
            self._running = False
            self._failed(error)
            return
        loop = asyncio.get_running_loop()
        self._started_at = loop.time()
        work = loop.run_in_executor(self._executor, flush)
        watch = loop.call_later(STALLED_SECONDS, self._report_stall, work)
        work.add_done_callback(lambda _done: watch.cancel())
        work.add_done_callback(lambda done: self._finish(flush, done))

    def _report_stall(self, work: asyncio.Future[None]) -> None:
        if not work.done():
            self._stalled()
            asyncio.get_running_loop().call_later(STALLED_SECONDS, self._report_stall, work)

    def _retry(self, error: OSError) -> None:
        if not self._is_retrying:
            log.warning("%s: syncing cannot begin, and is tried again: %s", self._log.directory, error)
        self._is_retrying = True
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._start)

    def _finish(self, flush: Flush, done: asyncio.Future[None]) -> None:
        if self._is_held():
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._finish, flush, done)
            return
        self._running = False
        if done.cancelled():
            return
        error = done.exception()
        if isinstance(error, OSError) and flush.failure is None:
            self._running = True
            self._retry(error)
            return
        if error is not None:
            self._failed(error)
            return
        self._is_retrying = False
        self._traffic.flushes += 1
        self._traffic.flush_seconds += asyncio.get_running_loop().time() - self._started_at
        try:
            self._log.finish_flush(flush)
        except StorageError as gone:  # the topic was deleted, say
            self._failed(gone)
            return
        # Not `flush.up_to`: a sync that began before a truncation says nothing about what was written since.
        flushed_end = self._log.recovery_point
        self._flushed(flushed_end)
        if min(self._wanted, self._log.end_offset) > flushed_end and not self._running:
            self._start()
