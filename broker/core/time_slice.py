"""Long work on the event loop, in slices: no other request waits longer than one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from tidemark.environment import monotonic

SLICE_SECONDS: Final = 0.004


class TimeSlice:
    """`pause` costs a reading of the clock, until the slice is over."""

    def __init__(self, seconds: float = SLICE_SECONDS, clock: Callable[[], float] = monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._end = clock() + seconds

    async def pause(self) -> None:
        if self._clock() < self._end:
            return
        await asyncio.sleep(0)
        self._end = self._clock() + self._seconds
