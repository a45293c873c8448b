"""Threads that write large batches to one log directory, so that the event loop need not wait for its disk.

A write(2) of a few kilobytes takes microseconds, less than handing it to a thread would. A large one takes a while in
any case, and when the disk is behind, the kernel makes whoever writes much wait: for the blocks of a file that is being
written out, or until there are fewer dirty pages. So batches up to a limit are written at once, and larger ones by
threads of the directory's own: a disk that hangs holds up no other. While writes are seen to be slow, only very small
batches are still written at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from tidemark.environment import monotonic, new_executor
from tidemark.storage import PendingAppend

AT_ONCE_BYTES_MAX: Final = 64 << 10
AT_ONCE_BYTES_MAX_IF_SLOW: Final = 4 << 10
THREADS: Final = 4  # more would only queue up in the kernel
SLOW_SECONDS: Final = 0.02  # a write that takes longer: the disk is behind
SLOW_FOR_SECONDS: Final = 2.0  # after such a write


class Writers:
    """`at_once_bytes_max`: larger batches are to be given to `write`."""

    __slots__ = ("_limit", "_pool", "_slow_until", "_stopped", "at_once_bytes_max")

    def __init__(self, at_once_bytes_max: int = AT_ONCE_BYTES_MAX) -> None:
        self._limit = at_once_bytes_max
        self.at_once_bytes_max = at_once_bytes_max
        self._pool: Executor | None = None
        self._slow_until = 0.0
        self._stopped = False

    def write(self, pending: PendingAppend, done: Callable[[], None]) -> None:
        """`done` is called on the event loop when the batch is written, or failed to be."""
        if self._pool is None:
            self._pool = new_executor(THREADS, name="write")
        self._pool.submit(self._run, pending, asyncio.get_running_loop(), done)

    def stop(self) -> None:
        """No `done` is called any more. Closing a log waits for what is being written to it."""
        self._stopped = True
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _run(self, pending: PendingAppend, loop: asyncio.AbstractEventLoop, done: Callable[[], None]) -> None:
        """On a thread."""
        pending()
        if not self._stopped:
            loop.call_soon_threadsafe(self._written, pending, done)

    def _written(self, pending: PendingAppend, done: Callable[[], None]) -> None:
        if self._stopped:
            return
        now = monotonic()
        if pending.seconds >= SLOW_SECONDS:
            self._slow_until = now + SLOW_FOR_SECONDS
        slow = now < self._slow_until
        self.at_once_bytes_max = min(self._limit, AT_ONCE_BYTES_MAX_IF_SLOW) if slow else self._limit
        done()
