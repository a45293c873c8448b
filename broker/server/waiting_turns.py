"""Connections that have requests at hand, and wait for their next turn: a few milliseconds of them in each turn of the
event loop, in the order in which they came, so that what keeps the cluster alive does not wait for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tidemark.environment import monotonic

TURN_SECONDS: Final = 0.01


class WaitingTurns:
    def __init__(self, loop: asyncio.AbstractEventLoop, *, seconds: float = TURN_SECONDS) -> None:
        """`seconds`: how much of each turn of the loop they get, and one of them at least."""
        self._loop = loop
        self._seconds = seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    def add(self, go_on: Callable[[], None]) -> None:
        """`go_on` is called in one of the next turns."""
        self._waiting.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Only what waits now: what is added meanwhile has its turn later."""
        until = monotonic() + self._seconds
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if monotonic() >= until:
                    break
        finally:
            self._is_scheduled = False
            self._schedule()
