"""Reads that are never stale: a leader proves that it still leads before it names an index to read at.

Every AppendEntries carries the number of the round it was sent in, and the answer echoes it. When a majority has echoed
a round, no other node had been elected when that round began (Raft §6.4), so every read before the round may be
answered. With leases the proof of an earlier round serves for a while: followers vote for no one else so soon.
"""

from __future__ import annotations

from collections import deque

from tidemark.raft.effects import ReadReady
from tidemark.raft.errors import Overloaded


class Reads:
    """Rounds of one leadership, and the reads that wait for them."""

    def __init__(self, *, waiting_max: int) -> None:
        self.round = 0
        self.confirmed_round = 0
        self.is_wanted = False  # a read waits for a round that has not begun
        self.lease_start: float | None = None
        self._waiting_max = waiting_max
        self._waiting: deque[tuple[int, ReadReady]] = deque()  # (the round that must be confirmed, the answer then)
        self._begun: deque[tuple[int, float]] = deque()  # rounds not confirmed, and when they began
        self.ready: list[ReadReady] = []

    def begin_round(self, now: float) -> None:
        self.round += 1
        self._begun.append((self.round, now))
        self.is_wanted = False

    def wait(self, read: ReadReady) -> None:
        if len(self._waiting) >= self._waiting_max:
            raise Overloaded(f"{self._waiting_max} reads wait already")
        self._waiting.append((self.round + 1, read))
        self.is_wanted = True

    def answer(self, read: ReadReady) -> None:
        self.ready.append(read)

    def confirm(self, round_: int) -> None:
        """A majority has answered this round, or a later one."""
        if round_ <= self.confirmed_round:
            return
        self.confirmed_round = round_
        while self._begun and self._begun[0][0] <= round_:
            self.lease_start = self._begun.popleft()[1]
        while self._waiting and self._waiting[0][0] <= round_:
            self.ready.append(self._waiting.popleft()[1])

    def take_ready(self) -> tuple[ReadReady, ...]:
        ready, self.ready = tuple(self.ready), []
        return ready
