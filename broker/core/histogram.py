"""Durations, counted by how long they were: an increment each, for paths where microseconds count."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

# Seconds. From what a small produce takes to what clients give up after.
BOUNDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Histogram:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)  # up to each bound, and above the last
        self.seconds = 0.0  # all of them together

    def observe(self, seconds: float, times: int = 1) -> None:
        """`times`: if it stands for others that were not measured."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.seconds += seconds * times

    @property
    def count(self) -> int:
        return sum(self.counts)
