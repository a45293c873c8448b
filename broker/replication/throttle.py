"""Limits on replication while partitions move: `leader.` and `follower.replication.throttled.rate` (KIP-73).

They hold for the replicas that a topic lists, and only while these are not in sync: a replica in sync must keep up, or
the throttle would throw it out. What was not used is saved up for `replication.quota.window.num` windows of
`replication.quota.window.size.seconds` each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tidemark.broker.config.key import LONG_MAX
from tidemark.pacing import BURST_SECONDS, TokenBucket

EVERY: Final = "*"


class Throttle:
    """So many bytes per second, if the rate is set at all. Rate and window may change at any time."""

    def __init__(self, rate: Callable[[], int], window_seconds: Callable[[], float] = lambda: BURST_SECONDS) -> None:
        self._rate = rate
        self._window_seconds = window_seconds
        self._bucket: TokenBucket | None = None

    @property
    def is_set(self) -> bool:
        return self._rate() < LONG_MAX

    @property
    def at_once(self) -> int:
        return max(self._rate(), 1)

    def spent(self, size: int, now: float) -> None:
        if self.is_set:
            self._current().take(size, now)

    def wait(self, now: float) -> float:
        """Seconds until there may be more; 0 if there may."""
        return self._current().wait(now) if self.is_set else 0.0

    def _current(self) -> TokenBucket:
        rate, window_seconds = self.at_once, self._window_seconds()
        if self._bucket is None:
            self._bucket = TokenBucket(rate, burst_seconds=window_seconds)
        elif self._bucket.rate != rate:
            self._bucket.set_rate(rate, burst_seconds=window_seconds)
        return self._bucket


def is_listed(listed: tuple[str, ...], *, index: int, node_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(listed) and (EVERY in listed or (index, node_id) in _parsed(listed))


@lru_cache(maxsize=1024)
def _parsed(listed: tuple[str, ...]) -> frozenset[tuple[int, int]]:
    pairs = (each.split(":") for each in listed)
    return frozenset((int(index), int(node)) for index, node in pairs)
