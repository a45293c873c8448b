"""Limits on replication while partitions move: `leader.` and `follower.replication.throttled.rate` (KIP-73).

They hold for the replicas that a topic lists, and only while these are not in sync: a replica in sync must keep up, or
the throttle would throw it out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from tidemark.broker.config.key import LONG_MAX

EVERY: Final = "*"


class Throttle:
    """So many bytes per second: one second's worth may come at once, and what was too much is waited for afterwards."""

    def __init__(self, rate: Callable[[], int]) -> None:
        self._rate = rate
        self._left = 0.0
        self._at: float | None = None

    @property
    def is_set(self) -> bool:
        return self._rate() < LONG_MAX

    @property
    def at_once(self) -> int:
        return max(self._rate(), 1)

    def spent(self, size: int, now: float) -> None:
        self._refill(now)
        self._left -= size

    def wait(self, now: float) -> float:
        """Seconds until there may be more; 0 if there may."""
        if not self.is_set:
            return 0.0
        self._refill(now)
        return 0.0 if self._left > 0 else (1 - self._left) / self.at_once

    def _refill(self, now: float) -> None:
        rate = self.at_once
        earned = rate if self._at is None else (now - self._at) * rate
        self._left = min(self._left + earned, rate)
        self._at = now


def is_listed(listed: tuple[str, ...], *, index: int, node_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(listed) and (EVERY in listed or (index, node_id) in _parsed(listed))


@lru_cache(maxsize=1024)
def _parsed(listed: tuple[str, ...]) -> frozenset[tuple[int, int]]:
    pairs = (each.split(":") for each in listed)
    return frozenset((int(index), int(node)) for index, node in pairs)
