"""Timers of a shard, without a clock: the host reads `next_ms` and calls `due` in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

PURGE_MIN: Final = 64

Action = Callable[[int], Any]  # gets the time; may return a CoordinatorResult


class Timer:
    __slots__ = ("action", "at_ms")

    def __init__(self, at_ms: int, action: Action) -> None:
        self.at_ms = at_ms
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class TimerQueue:
    def __init__(self, earlier: Callable[[int], None] = lambda _: None) -> None:
        """`earlier(at_ms)` is called whenever a new timer is due before all others."""
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._earlier = earlier
        self._purge_at = PURGE_MIN

    @property
    def next_ms(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].action is None:
            heappop(heap)
        return heap[0][0] if heap else None

    def set(self, at_ms: int, action: Action) -> Timer:
        timer = Timer(at_ms, action)
        sooner = not self._heap or at_ms < self._heap[0][0]
        heappush(self._heap, (at_ms, next(self._order), timer))
        if len(self._heap) >= self._purge_at:
            self._purge()
        if sooner:
            self._earlier(at_ms)
        return timer

    def _purge(self) -> None:
        """Drop cancelled timers, whenever the heap has doubled since the last purge."""
        self._heap[:] = [entry for entry in self._heap if entry[2].action is not None]
        heapify(self._heap)
        self._purge_at = max(PURGE_MIN, 2 * len(self._heap))

    def due(self, now_ms: int) -> Iterator[Any]:
        """Run what is due, and yield what each action returned. An action may set further timers."""
        heap = self._heap
        while heap and heap[0][0] <= now_ms:
            _, _, timer = heappop(heap)
            if timer.action is not None:
                action, timer.action = timer.action, None
                yield action(now_ms)
