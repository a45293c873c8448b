"""Where lines are written, and how many: no place in the program fills a disk, whatever a client does to it.

Of each place that logs, so many lines are written in ten seconds; then it is told how many others there were. What
somebody wants to see at DEBUG or below is not limited.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

LINES_MAX: Final = 100
SECONDS: Final = 10.0

_Place = tuple[str, int]


class Lines(Protocol):
    """As much of a stream as a handler needs."""

    def write(self, line: str, /) -> object: ...

    def flush(self) -> None: ...


class LimitedHandler(logging.StreamHandler[Lines]):
    def __init__(self, stream: Lines, *, lines_max: int = LINES_MAX, seconds: float = SECONDS) -> None:
        super().__init__(stream)
        self._lines_max = lines_max
        self._seconds = seconds
        self._until = 0.0
        self._lines: dict[_Place, int] = {}
        self._names: dict[_Place, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.DEBUG:
            if record.created >= self._until:
                self._tell_unlogged(record)
            place = (record.pathname, record.lineno)
            lines = self._lines[place] = self._lines.get(place, 0) + 1
            if lines > self._lines_max:
                self._names[place] = record.name
                return
        super().emit(record)

    def _tell_unlogged(self, record: logging.LogRecord) -> None:
        self._until = record.created + self._seconds
        names, self._names = self._names, {}
        lines, self._lines = self._lines, {}
        for place, name in names.items():
            told = logging.makeLogRecord(
                {
                    "name": name,
                    "levelno": logging.WARNING,
                    "levelname": "WARNING",
                    "created": record.created,
                    "msecs": record.msecs,
                    "msg": "%d more lines like those before were not logged",
                    "args": (lines[place] - self._lines_max,),
                }
            )
            super().emit(told)
