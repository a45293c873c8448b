"""Opening many logs without keeping everything else waiting: the disk takes its time for each of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

AT_ONCE_SECONDS: Final = 0.05  # in one go; then others have their turn
PAUSE_SECONDS: Final = 0.005


class Opening:
    """Those that come one by one are opened at once; of many, the rest wait for their turn."""

    def __init__(self, open_one: Callable[[bytes, int], None]) -> None:
        self._open_one = open_one
        self._waiting: deque[tuple[bytes, int]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._busy_until = 0.0

    def add(self, topic_id: bytes, index: int) -> None:
        now = time.monotonic()
        if self._task is None and now < self._busy_until:
            self._open_one(topic_id, index)
            return
        if self._task is None and not self._waiting and now > self._busy_until + AT_ONCE_SECONDS:
            self._busy_until = now + AT_ONCE_SECONDS
            self._open_one(topic_id, index)
            return
        self._waiting.append((topic_id, index))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._waiting:
                until = time.monotonic() + AT_ONCE_SECONDS
                while self._waiting and time.monotonic() < until:
                    try:
                        self._open_one(*self._waiting.popleft())
                    except Exception:
                        log.exception("a partition could not be opened")
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._task = None

    async def finished(self) -> None:
        """Returns when nothing waits any more."""
        while self._task is not None:
            await asyncio.wait([self._task])

    def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
