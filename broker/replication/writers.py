"""Threads that write to one log directory while its disk is slow, so that the event loop need not wait for it.

A write(2) of a few kilobytes takes microseconds, and one of a megabyte less than a millisecond: handing it to a thread
would cost more than that. But when the disk is behind, the kernel makes whoever writes wait: for the blocks of a file
that is being written out, or until there are fewer dirty pages. So batches are written at once until a write took
long; from then on, and for a while after the last such write, all but small ones are written by threads. They are the
directory's own: a disk that hangs holds up no other.

The kernel makes those wait who write much, so a small batch is rarely held up even then; by a thread it would be,
behind all others that want a processor. What gathers in a client meanwhile comes as the next batch: were that one too
large to be written at once, a wait of milliseconds would lead to ever longer ones. Only where small ones are held up,
too, are very small ones alone written at once.

The threads let others run first. Copying megabytes into the page cache takes most of a processor, and the event loop,
when something arrives for it, would have to wait until the scheduler takes it away from them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from tidemark.environment import monotonic, new_executor
from tidemark.portable import sleeps
from tidemark.storage import PendingAppend

log = logging.getLogger(__name__)

UNTIMED_BYTES_MAX: Final = 8 << 10  # smaller writes are not worth two looks at the clock
AT_ONCE_BYTES_MAX_IF_SLOW: Final = 64 << 10
AT_ONCE_BYTES_MAX_IF_BLOCKED: Final = 4 << 10  # since a small write waited, too
THREADS: Final = 16  # a partition has one at a time: with few of them, small batches would wait behind large ones
NICENESS: Final = 10
SLOW_SECONDS: Final = 0.1  # a write that takes longer: the disk is behind. On a busy machine it may be the CPU, if less
BLOCKED_SECONDS: Final = 0.02  # likewise, if the system says that the write waited, and not for a processor
STILL_SLOW_SECONDS: Final = 0.025  # likewise, once that is known
SLOW_FOR_SECONDS: Final = 30.0  # after such a write


class Writers:
    """`at_once_bytes_max`: larger batches are to be given to `write`."""

    __slots__ = ("_directory", "_pool", "_slow_until", "_stopped", "at_once_bytes_max")

    def __init__(self, directory: str = "") -> None:
        self._directory = directory
        self.at_once_bytes_max = sys.maxsize
        self._pool: Executor | None = None
        self._slow_until = 0.0
        self._stopped = False

    def note_since(self, begun: float, slept: int) -> None:
        """A write here has ended; `begun` and `slept`: the clock, and this thread's `sleeps`, before it."""
        seconds = monotonic() - begun
        is_blocked = seconds >= BLOCKED_SECONDS and sleeps() > slept
        if is_blocked and self._slow_until:
            self.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_BLOCKED
        self.note(seconds, is_blocked=is_blocked)

    def note(self, seconds: float, *, is_blocked: bool = False) -> None:
        """A write has taken so long."""
        if self._slow_until:
            self._note_while_slow(is_slow=seconds >= STILL_SLOW_SECONDS or is_blocked)
        elif seconds >= SLOW_SECONDS or is_blocked:
            log.info("%s: a write took %.0f ms; from here on threads write", self._directory, seconds * 1000)
            self._slow_until = monotonic() + SLOW_FOR_SECONDS
            self.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_SLOW

    def _note_while_slow(self, *, is_slow: bool) -> None:
        now = monotonic()
        if is_slow:
            self._slow_until = now + SLOW_FOR_SECONDS
        elif now >= self._slow_until:
            self._slow_until = 0.0
            self.at_once_bytes_max = sys.maxsize

    def write(self, pending: PendingAppend, done: Callable[[], None]) -> None:
        """`done` is called on the event loop when the batch is written, or failed to be; in rare cases twice."""
        if self._pool is None:
            self._pool = new_executor(THREADS, name="write", niceness=NICENESS)
        loop = asyncio.get_running_loop()
        try:
            self._pool.submit(self._run, pending, loop, done)
        except RuntimeError as error:  # the system gives us no thread
            log.warning("%s is written to without a thread: %s", self._directory, error)
            pending()
            loop.call_soon(self._written, pending, done)

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
        if not self._stopped:
            self.note(pending.seconds)
            done()
