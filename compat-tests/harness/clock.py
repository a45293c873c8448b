"""A wall clock that can be set while a process runs: a small library preloaded into the broker.

Only the wall clock is moved. The monotonic clocks go on as they do on a machine whose clock is set. (libfaketime could
do this, too; but it also stands between threads and the condition variables that they wait on, and Python with two busy
threads then takes seven times as much CPU.)
"""

from __future__ import annotations

from pathlib import Path


class Clock:
    """From its next start on, a broker with this environment sees the time that it is told."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._file = directory / "clock"
        self.environment = {"LD_PRELOAD": str(library), "CLOCK": str(self._file)}
        self.set(0)

    def set(self, seconds: float) -> None:
        """So much ahead of the true time, or behind it: seen within a second."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}\n")
        new.replace(self._file)  # never read half written
