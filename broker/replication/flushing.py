"""Group commit: one fdatasync, off the event loop, for every append that waits for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from tidemark.storage import Flush, Log

log = logging.getLogger(__name__)


class GroupCommit:
    """Syncs one log. While a sync runs, later appends gather; the next sync covers all of them."""

    __slots__ = ("_executor", "_failed", "_flushed", "_log", "_running", "_wanted")

    def __init__(
        self, log: Log, executor: Executor, *, flushed: Callable[[int], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._log = log
        self._executor = executor
        self._flushed = flushed
        self._failed = failed
        self._wanted = -1
        self._running = False

    def request(self) -> None:
        """Everything appended so far is to be on disk; `flushed(offset)` tells when it is."""
        self._wanted = self._log.end_offset
        if not self._running:
            self._start()

    def _start(self) -> None:
        self._running = True
        flush = self._log.begin_flush()
        work = asyncio.get_running_loop().run_in_executor(self._executor, flush)
        work.add_done_callback(lambda done: self._finish(flush, done))

    def _finish(self, flush: Flush, done: asyncio.Future[None]) -> None:
        self._running = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed(error)
            return
        self._log.finish_flush(flush)
        self._flushed(flush.up_to)
        if self._wanted > flush.up_to and not self._running:
            self._start()
