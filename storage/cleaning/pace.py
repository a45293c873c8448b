"""How fast a cleaning may be: log.cleaner.io.max.bytes.per.second."""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """Holds reading and writing, together, to a rate."""

    def __init__(self, bytes_per_second: float, *, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def __call__(self, count: int) -> None:
        now = self._clock()
        self._due = max(self._due, now) + count / self._rate
        if self._due > now:
            self._sleep(self._due - now)
