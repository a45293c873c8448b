"""Threads that write to one log directory while its disk is slow, so that the event loop need not wait for it.

A write(2) of a few kilobytes takes microseconds, and one of a megabyte less than a millisecond: handing it to a thread
would cost more than that. But when the disk is behind, the kernel makes whoever writes wait: for the blocks of a file
that is being written out, or until there are fewer dirty pages. So batches are written at once until so much lies in
memory that the system is about to write it out, or until a write took long; from then on, and for a while after that
was seen last, all but small ones are written by threads. They are the directory's own: a disk that hangs holds up no
other.

The kernel makes those wait who write much, so a small batch is rarely held up even then; by a thread it would be,
behind all others that want a processor. What gathers in a client meanwhile comes as the next batch: were that one too
large to be written at once, a wait of milliseconds would lead to ever longer ones. Only where small ones are held up,
too, are very small ones alone written at once.

What is done behind Kafka's clients has its large batches written in pieces, one in each turn of the event loop.

Copying megabytes into the page cache takes most of a processor, and the event loop, when something arrives for it,
would have to wait until the scheduler takes it away from the threads. So the loop takes short turns from then on, if
the system knows of such, and is let in at once. Otherwise the threads have a low priority; that is second best, since
one that is kept from running may hold the interpreter's lock.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from tidemark.broker.core.background_work import BackgroundWork
from tidemark.environment import current, monotonic, new_executor
from tidemark.portable import sleeps
from tidemark.storage import PendingAppend

log = logging.getLogger(__name__)

UNTIMED_BYTES_MAX: Final = 8 << 10  # smaller writes are not worth two looks at the clock
AT_ONCE_BYTES_MAX_IF_SLOW: Final = 64 << 10
AT_ONCE_BYTES_MAX_IF_BLOCKED: Final = 4 << 10  # since a small write waited, too
PIECE_BYTES: Final = 32 << 10  # of a batch that is written in pieces
THREADS: Final = 16  # a partition has one at a time: with few of them, small batches would wait behind large ones
NICENESS: Final = 10
SLOW_SECONDS: Final = 0.1  # a write that takes longer: the disk is behind. On a busy machine it may be the CPU, if less
BLOCKED_SECONDS: Final = 0.02  # likewise, if the system says that the write waited, and not for a processor
STILL_SLOW_SECONDS: Final = 0.025  # likewise, once that is known
SLOW_FOR_SECONDS: Final = 30.0  # after such a write
LOOK_EVERY_BYTES: Final = 32 << 20  # written: then it is looked how much lies in memory
NEARLY_WRITTEN_OUT: Final = 0.75  # of what may lie there before the system writes it out
NEARLY_FOR_SECONDS: Final = 5.0  # after it was so


class Writers:
    """`at_once_bytes_max`: larger batches are to be given to `write`."""

    __slots__ = ("_directory", "_in_pieces", "_pool", "_slow_until", "_stopped", "_unseen_bytes", "at_once_bytes_max")

    def __init__(self, directory: str = "") -> None:
        self._directory = directory
        self.at_once_bytes_max = sys.maxsize
        self._pool: Executor | None = None
        self._in_pieces: deque[tuple[PendingAppend, Callable[[], None]]] = deque()
        self._slow_until = 0.0
        self._unseen_bytes = 0  # written since it was looked how much lies in memory
        self._stopped = False

    def note_since(self, begun: float, slept: int, *, size: int) -> None:
        """A write here has ended; `begun` and `slept`: the clock, and this thread's `sleeps`, before it."""
        seconds = monotonic() - begun
        is_blocked = seconds >= BLOCKED_SECONDS and sleeps() > slept
        if is_blocked and self._slow_until:
            self.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_BLOCKED
        self.note(seconds, is_blocked=is_blocked)
        self.note_bytes(size)

    def note(self, seconds: float, *, is_blocked: bool = False) -> None:
        """A write has taken so long."""
        if self._slow_until:
            self._note_while_slow(is_slow=seconds >= STILL_SLOW_SECONDS or is_blocked)
        elif seconds >= SLOW_SECONDS or is_blocked:
            log.info("%s: a write took %.0f ms; from here on threads write", self._directory, seconds * 1000)
            self._slow_until = monotonic() + SLOW_FOR_SECONDS
            self.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_SLOW

    def note_bytes(self, size: int) -> None:
        """So much has been written. The first write that has to wait may wait for a tenth of a second, and with it all
        that the event loop serves: it is better told by what lies in memory."""
        self._unseen_bytes += size
        if self._unseen_bytes < LOOK_EVERY_BYTES:
            return
        self._unseen_bytes = 0
        share = current().files.unwritten_share()
        if share >= NEARLY_WRITTEN_OUT:
            if not self._slow_until:
                log.debug("%s: %.2f of what may wait for the disk; from here on threads write", self._directory, share)
                self.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_SLOW
            self._slow_until = max(self._slow_until, monotonic() + NEARLY_FOR_SECONDS)

    def _note_while_slow(self, *, is_slow: bool) -> None:
        now = monotonic()
        if is_slow:
            self._slow_until = now + SLOW_FOR_SECONDS
        elif now >= self._slow_until:
            self._slow_until = 0.0
            self.at_once_bytes_max = sys.maxsize

    def write(self, pending: PendingAppend, done: Callable[[], None]) -> None:
        """`done` is called on the event loop when the batch is written, or failed to be; in rare cases twice."""
        loop = asyncio.get_running_loop()
        background_work: BackgroundWork | None = getattr(loop, "background_work", None)
        if background_work is None or not pending.is_plain or pending.size > self.at_once_bytes_max:
            self._write_by_thread(pending, done, loop)
            return
        self._in_pieces.append((pending, done))
        if len(self._in_pieces) == 1:
            self._write_next_piece(loop, background_work)

    def _write_next_piece(self, loop: asyncio.AbstractEventLoop, background_work: BackgroundWork) -> None:
        background_work.take_next_turn()
        loop.call_soon(self._write_piece, loop, background_work)

    def _write_piece(self, loop: asyncio.AbstractEventLoop, background_work: BackgroundWork) -> None:
        if self._stopped:
            return
        pending, done = self._in_pieces[0]
        is_over, is_slow = False, pending.size > self.at_once_bytes_max  # since it was begun
        if not is_slow:
            begun, slept = monotonic(), sleeps()
            is_over = pending.write(bytes_max=PIECE_BYTES)
            self.note_since(begun, slept, size=min(PIECE_BYTES, pending.size))
        if is_over or is_slow:
            self._in_pieces.popleft()
        if self._in_pieces:
            self._write_next_piece(loop, background_work)
        if is_over:
            done()
        elif is_slow:
            self._write_by_thread(pending, done, loop)

    def _write_by_thread(
        self, pending: PendingAppend, done: Callable[[], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        if self._pool is None:
            take_short_turns: Callable[[], bool] | None = getattr(loop, "take_short_turns", None)
            is_let_in = take_short_turns is not None and take_short_turns()
            self._pool = new_executor(THREADS, name="write", niceness=0 if is_let_in else NICENESS)
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
            self.note_bytes(pending.size)
            done()
