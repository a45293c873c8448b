"""Log lines about what strangers do, which a flood of them cannot flood."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

LINES_MAX: Final = 20
SECONDS: Final = 10.0


class LimitedLog:
    """Up to `lines_max` lines of each level in `seconds`; the first line after that says how many others there were."""

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
        self._since: dict[int, float] = {}  # by level: what is worth a note must not hide what is worth a warning
        self._lines: Counter[int] = Counter()

    def warning(self, message: str, *values: object, extra: Mapping[str, object] | None = None) -> None:
        self._write(logging.WARNING, message, values, extra)

    def info(self, message: str, *values: object, extra: Mapping[str, object] | None = None) -> None:
        self._write(logging.INFO, message, values, extra)

    def exception(self, message: str, *values: object, extra: Mapping[str, object] | None = None) -> None:
        self._write(logging.ERROR, message, values, extra, exc_info=True)

    def _write(
        self,
        level: int,
        message: str,
        values: tuple[object, ...],
        extra: Mapping[str, object] | None,
        *,
        exc_info: bool = False,
    ) -> None:
        if not self._log.isEnabledFor(level):
            return
        now = self._clock()
        if now >= self._since.get(level, float("-inf")) + self._seconds:
            if (unlogged := self._lines[level] - self._lines_max) > 0:
                self._log.log(level, "%d more lines like these were not logged", unlogged)
            self._since[level], self._lines[level] = now, 0
        self._lines[level] += 1
        if self._lines[level] <= self._lines_max:
            self._log.log(level, message, *values, extra=extra, exc_info=exc_info)
