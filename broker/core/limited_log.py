"""Log lines about what strangers do, which a flood of them cannot flood."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

LINES_MAX: Final = 20
SECONDS: Final = 10.0


class LimitedLog:
    """Up to `lines_max` lines in `seconds`; the first line after that says how many others there were."""

    def __init__(
        self,
        log: logging.Logger,
        *,
        clock: Callable[[], float],
        lines_max: int = LINES_MAX,
        seconds: float = SECONDS,
    ) -> None:
        self._log = log
        self._clock = clock
        self._lines_max = lines_max
        self._seconds = seconds
        self._since = float("-inf")
        self._lines = 0

    def warning(self, message: str, *values: object) -> None:
        now = self._clock()
        if now >= self._since + self._seconds:
            if (unlogged := self._lines - self._lines_max) > 0:
                self._log.warning("%d more lines like these were not logged", unlogged)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= self._lines_max:
            self._log.warning(message, *values)
