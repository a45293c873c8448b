"""A progress bar on standard error, for work that takes longer than a second, where a person is looking."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TextIO

SILENT_SECONDS: Final = 1.0
INTERVAL_SECONDS: Final = 0.1
WIDTH: Final = 30
_UNITS: Final = ("B", "KB", "MB", "GB", "TB")


class Progress:
    def __init__(
        self, total: int, *, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._total = total
        self._done = 0
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._began = clock()
        self._next = self._began + SILENT_SECONDS
        self._is_shown = False

    def advance(self, count: int, label: str = "") -> None:
        self._done += count
        now = self._clock()
        if now >= self._next and self._stream.isatty():
            self._next = now + INTERVAL_SECONDS
            self._is_shown = True
            self._stream.write(f"\r{self._line(now, label)}\x1b[K")
            self._stream.flush()

    def _line(self, now: float, label: str) -> str:
        part = min(self._done / self._total, 1.0) if self._total else 1.0
        filled = int(part * WIDTH)
        seconds = max(now - self._began, 0.001)
        left = (1 - part) / part * seconds if part else 0.0
        bar = "█" * filled + "·" * (WIDTH - filled)
        amount = f"{size_text(self._done)} of {size_text(self._total)}"
        rate = size_text(int(self._done / seconds))
        return f"{bar} {part:4.0%}  {amount}, {rate}/s, {left:.0f} s left  {label}"

    def clear(self) -> None:
        if self._is_shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_shown = False


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    bar = Progress(total)
    try:
        yield bar
    finally:
        bar.clear()


def size_text(count: int) -> str:
    size = float(count)
    for unit in _UNITS[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} {_UNITS[-1]}"
