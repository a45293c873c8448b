"""How far behind a sink is: from where its finished batches end to the end of the log, as the cluster has it now.

Spark's progress knows only the end that a batch was planned to; against that, every batch is always up to date.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import Partition

Ends = Callable[[], Mapping[Partition, int]]
ASK_EVERY_S = 2.0


def records_behind(positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> int:
    """Of the partitions whose end is known. One that no batch has read yet counts from its beginning."""
    return sum(max(0, end - positions.get(partition, 0)) for partition, end in ends.items())


class LogEnds:
    """The ends of the partitions that are read, asked for at most every two seconds. A broker that is away leaves the
    last ones standing: lag goes on being told, and is never too small for that."""

    def __init__(self, ask: Ends, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._clock = clock
        self._asked_at = float("-inf")
        self._ends: Mapping[Partition, int] = {}

    def now(self) -> Mapping[Partition, int]:
        at = self._clock()
        if at - self._asked_at >= ASK_EVERY_S:
            self._asked_at = at
            try:
                self._ends = self._ask()
            except CommandFailed:
                return self._ends
        return self._ends
