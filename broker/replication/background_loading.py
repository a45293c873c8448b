"""Loading many logs without holding up the event loop: each needs the disk, and after an unclean stop a log may have to
be read from end to end.

Threads load one log after another, and the event loop puts them to use. New ones that come one by one are made at once,
on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final

from tidemark.broker.core.time_slice import TimeSlice
from tidemark.environment import monotonic, new_executor
from tidemark.storage import Log

log = logging.getLogger(__name__)

ON_LOOP_SECONDS: Final = 0.003  # of making logs on the loop; then the thread has its turn
BATCH_SECONDS_MAX: Final = 0.1  # of loading by the thread before the loop gets the result
PROGRESS_SECONDS: Final = 5.0  # between two lines in the log, where it takes long
BATCH_MAX: Final = 100  # logs that the loop puts to use in one go

Key = tuple[bytes, int]  # topic id, partition
Load = Callable[[], Log]
Loaded = Log | Exception


class BackgroundLoading:
    def __init__(
        self,
        *,
        prepare: Callable[[Key], Load | None],
        open_now: Callable[[Key], None],
        loaded: Callable[[Key, Loaded], None],
        threads: int = 1,
    ) -> None:
        """`prepare` is called on the loop and says how to load a log; one of `threads` calls that, and `loaded` gets
        the result, on the loop again. `open_now` is for a log with nothing to load (None), and for one that is new and
        comes alone."""
        self._prepare = prepare
        self._open_now = open_now
        self._loaded = loaded
        self._waiting: dict[Key, None] = {}
        self._loading: set[Key] = set()
        self._task: asyncio.Task[None] | None = None
        self._threads = threads
        self._pool: Executor | None = None
        self._busy_until = 0.0
        self._closed = False
        self._opened = 0  # since there was last nothing to do
        self._told_at = 0.0
        self.is_complete = True  # whether nothing was left out at the end

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting or key in self._loading

    def add(self, key: Key, *, is_new: bool) -> None:
        if self._closed:
            self.is_complete = False
        elif is_new and self._task is None and self._has_time():
            self._open_now(key)
        else:
            self._waiting[key] = None
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())

    def _has_time(self) -> bool:
        """Whether the loop can spare a moment: as long for other work after every stretch of this."""
        now = monotonic()
        if now > self._busy_until + ON_LOOP_SECONDS:
            self._busy_until = now + ON_LOOP_SECONDS
        return now < self._busy_until

    @property
    def progress(self) -> tuple[int, int]:
        """How many logs are open of those that were to be opened; (0, 0) when there is nothing to do."""
        left = len(self._waiting) + len(self._loading)
        return (self._opened, self._opened + left) if left else (0, 0)

    async def _run(self) -> None:
        self._opened, self._told_at = 0, monotonic()
        try:
            while self._waiting:
                await self._open_some()
                self._tell()
        finally:
            self._task = None

    def _tell(self) -> None:
        if self._waiting and monotonic() > self._told_at + PROGRESS_SECONDS:
            self._told_at = monotonic()
            log.info("%d of %d logs are open", *self.progress)

    async def _open_some(self) -> None:
        if self._pool is None:
            self._pool = new_executor(self._threads, name="open")
        keys = list(self._waiting)[:BATCH_MAX]
        loads: list[tuple[Key, Load]] = []
        for key in keys:
            del self._waiting[key]
            if (load := self._prepare(key)) is None:
                self._opened += 1
                self._try(self._open_now, key)
            else:
                loads.append((key, load))
        self._loading = {key for key, _ in loads}
        shares = [loads[first :: self._threads] for first in range(min(self._threads, len(loads)))]
        loop = asyncio.get_running_loop()
        done = await asyncio.gather(*(loop.run_in_executor(self._pool, _load, share) for share in shares))
        results = [
            (share[at][0], each) for share, found in zip(shares, done, strict=True) for at, each in enumerate(found)
        ]
        left = [
            key for key, _ in loads if key not in dict(results)
        ]  # there was no time for them: first in the next turn
        if not self._closed:
            self._waiting = {**dict.fromkeys(left), **self._waiting}
        elif left:
            self.is_complete = False
        self._loading.difference_update(left)
        time_slice = TimeSlice()
        for key, loaded in results:
            self._loading.discard(key)
            self._opened += 1
            self._try(self._loaded, key, loaded)
            await time_slice.pause()
        await asyncio.sleep(0)

    def _try(self, what: Callable[..., None], *arguments: object) -> None:
        try:
            what(*arguments)
        except Exception:
            log.exception("a partition could not be opened")

    async def finished(self) -> None:
        """Returns when nothing waits any more."""
        while self._task is not None:
            await asyncio.wait([self._task])

    async def close(self) -> None:
        """What is being loaded is still put to use; what waits is left out."""
        self._closed = True
        self.is_complete = not self._waiting
        self._waiting.clear()
        await self.finished()
        if self._pool is not None:
            self._pool.shutdown()


def _load(loads: Sequence[tuple[Key, Load]]) -> list[Loaded]:
    """In a thread: as many as there is time for, one at least."""
    until = monotonic() + BATCH_SECONDS_MAX
    done: list[Loaded] = []
    for _, load in loads:
        try:
            done.append(load())
        except Exception as error:
            done.append(error)
        if monotonic() > until:
            break
    return done
