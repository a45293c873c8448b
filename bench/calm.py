"""Times in which the hypervisor took nothing of this machine's processors: only then is a wait the broker's own."""

import time
from bisect import bisect_left, bisect_right
from pathlib import Path

WINDOW_SECONDS = 0.1
_STOLEN = 8  # the column of /proc/stat


def stolen_ticks() -> int:
    """Of all processors together, in hundredths of a second; 0 where the system does not tell."""
    try:
        return int(Path("/proc/stat").read_text().split(maxsplit=_STOLEN + 1)[_STOLEN])
    except (OSError, IndexError, ValueError):
        return 0


class StolenTime:
    """`mark` is to be called often; it looks once in a tenth of a second."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]
        self._ticks = [stolen_ticks()]

    def mark(self, now: float) -> None:
        if now - self._times[-1] >= WINDOW_SECONDS:
            self._times.append(now)
            self._ticks.append(stolen_ticks())

    def is_calm(self, began: float, ended: float) -> bool:
        """From the look before it began to the second after it ended: what is taken may be told a little later."""
        first = max(0, bisect_right(self._times, began) - 1)
        last = min(len(self._times) - 1, bisect_left(self._times, ended) + 1)
        return self._ticks[last] == self._ticks[first]

    @property
    def share(self) -> float:
        """Of one processor's time: 0.1 is a tenth of a second in each second."""
        passed = self._times[-1] - self._times[0]
        return (self._ticks[-1] - self._ticks[0]) / 100 / passed if passed else 0.0
