"""Threads that read the records of large batches, so that the event loop need not.

Reading records holds the interpreter lock (decompressing does not). A thread that never let go of it would delay
whatever the event loop does by five milliseconds at each system call: so it works in slices, and sleeps between them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final

from tidemark.broker.replication.examination import Examination
from tidemark.environment import current, monotonic, new_executor

log = logging.getLogger(__name__)

THREADS: Final = 2
SLICE_SECONDS: Final = 0.004  # the interpreter would take the lock away from a thread after five milliseconds
PAUSE_SECONDS: Final = 0.002  # after each slice, for each thread that is at work

Done = Callable[[], None]


class Stopped(Exception):
    """The node stops: no request waits for the outcome any more."""


class Examiners:
    """Clients have their turns one after the other, and no client has two threads."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool: Executor | None = None
        self._waiting: dict[object, deque[tuple[Examination, Done]]] = {}  # by client; the first is next
        self._served: set[object] = set()
        self._stopped = False

    def examine(self, examination: Examination, *, client: object, done: Done) -> None:
        """`done` is called on the event loop."""
        self._waiting.setdefault(client, deque()).append((examination, done))
        self._begin()

    def stop(self) -> None:
        self._stopped = True
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def _begin(self) -> None:
        while len(self._served) < self._threads and not self._stopped:
            client = next((each for each in self._waiting if each not in self._served), None)
            if client is None:
                return
            jobs = self._waiting.pop(client)
            examination, done = jobs.popleft()
            if jobs:
                self._waiting[client] = jobs  # behind all others
            self._served.add(client)
            self._start(examination, client, done)

    def _start(self, examination: Examination, client: object, done: Done) -> None:
        if self._pool is None:
            self._pool = new_executor(self._threads, name="examine")
        loop = asyncio.get_running_loop()
        finished = partial(self._finished, examination, client, done)
        self._pool.submit(self._run, examination, loop, finished)

    def _run(self, examination: Examination, loop: asyncio.AbstractEventLoop, finished: Done) -> None:
        """On a thread."""
        examination.run(_Pauses(self._pause))
        if not self._stopped:
            loop.call_soon_threadsafe(finished)

    def _pause(self) -> None:
        if self._stopped:
            raise Stopped
        current().sleep(PAUSE_SECONDS * max(1, len(self._served)))

    def _finished(self, examination: Examination, client: object, done: Done) -> None:
        self._served.discard(client)
        examination.is_done = True
        if self._stopped:
            return
        try:
            done()
        finally:
            self._begin()


class _Pauses:
    """Called as often as one likes; the pause comes when a slice is over."""

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._slice_end = monotonic() + SLICE_SECONDS

    def __call__(self) -> None:
        if monotonic() >= self._slice_end:
            self._pause()
            self._slice_end = monotonic() + SLICE_SECONDS
