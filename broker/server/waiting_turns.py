"""Connections that have requests at hand, and wait for their next turn: a few milliseconds of them in each turn of the
event loop, in the order in which they came, so that what keeps the cluster alive does not wait for all of them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tidemark.environment import monotonic

TURN_SECONDS: Final = 0.01
TURNS_PASSED_MAX: Final = 2


class WaitingTurns:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        seconds: float = TURN_SECONDS,
        is_busy: Callable[[], bool] = lambda: False,
        is_taken: Callable[[], bool] = lambda: False,
    ) -> None:
        """`seconds`: how much of each turn of the loop they get, and one of them at least; but none in a turn that
        `is_taken`, and none while `is_busy`, for `TURNS_PASSED_MAX` turns."""
        self._is_busy = is_busy
        self._is_taken = is_taken
        self._passed = 0
        self._loop = loop
        self._seconds = seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

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
        if self._is_taken() or (self._is_busy() and self._passed < TURNS_PASSED_MAX):
            self._passed += 1
            self._loop.call_soon(self._turn)
            return
        self._passed = 0
        try:
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()
                if monotonic() >= until:
                    break
        finally:
            self._is_scheduled = False
            self._schedule()
