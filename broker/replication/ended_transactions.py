"""Whose transactions were ended in a partition, and in which order.

A batch is appended only after the coordinator has said that its transaction is open; if that is asked of another
broker, or if the batch has to wait for its turn, the transaction may be ended meanwhile. The batch would then open one
that nobody ends, and readers would wait at it for ever (KIP-890). From transactions of version 2 on its epoch gives it
away, as long as the log has not forgotten its producer; otherwise this does.
"""

from __future__ import annotations

from typing import Final

PRODUCERS_MAX: Final = 1000


class EndedTransactions:
    """`count`: how many have been ended so far."""

    __slots__ = ("_forgotten", "_last", "count")

    def __init__(self) -> None:
        self.count = 0
        self._last: dict[int, int] = {}  # by producer id: the number of its last one, the oldest first
        self._forgotten = 0  # the newest number that was dropped from there

    def add(self, producer_id: int) -> None:
        self.count += 1
        self._last.pop(producer_id, None)
        self._last[producer_id] = self.count
        if len(self._last) > PRODUCERS_MAX:
            self._forgotten = self._last.pop(next(iter(self._last)))

    def has_since(self, producer_id: int, count: int) -> bool:
        """Whether one of this producer has been ended since there were `count`, or may have been."""
        return self._last.get(producer_id, self._forgotten) > count
