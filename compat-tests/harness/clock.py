"""A wall clock that can be set while a process runs: libfaketime, which stands between it and the kernel's.

Only the wall clock is moved. The monotonic clocks go on as they do on a machine whose clock is set.
"""

from __future__ import annotations

from pathlib import Path

LIBRARIES = "*/faketime/libfaketime.so.1"


class Clock:
    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self.set(0)

    def set(self, seconds: float) -> None:
        """So much ahead of the true time, or behind it: seen within a second."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.0f}\n")
        new.replace(self._file)  # never read half written

    @property
    def environment(self) -> dict[str, str]:
        """For the process that shall see it."""
        found = sorted(Path("/usr/lib").glob(LIBRARIES))
        assert found, "libfaketime is missing: see tools/install-system-tools"
        return {
            "LD_PRELOAD": str(found[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
