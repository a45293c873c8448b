"""Work behind Kafka's clients, HTTP's and scrapes: one step of it in each turn of the event loop.

A step is a socket that is read, a request that is begun, a slice of long work, or somebody who waited for that and goes
on. Between two steps the loop looks for requests of Kafka's clients: these wait for one step at most.
"""

from __future__ import annotations

import asyncio

from tidemark.broker.core.sliced_work import BACKGROUND_SLICE_SECONDS, SlicedWork


class BackgroundTurns:
    """Turns of the event loop, once there are sockets behind the others: which of them have their step."""

    __slots__ = ("_taken", "began", "number")

    def __init__(self) -> None:
        self.number = 0  # of this turn; 0: they are not counted
        self.began = 0.0
        self._taken = 0  # the last that has its step

    def begin(self, now: float) -> None:
        self.number += 1
        self.began = now

    @property
    def is_taken(self) -> bool:
        """Whether this turn has its step already, or the next one has."""
        return self._taken >= self.number > 0

    @property
    def next_is_taken(self) -> bool:
        return self._taken > self.number > 0

    def take(self) -> None:
        self._taken = self.number

    def take_next(self) -> None:
        if self.number:
            self._taken = self.number + 1


class BackgroundWork(SlicedWork):
    def __init__(self, turns: BackgroundTurns) -> None:
        super().__init__(slice_seconds=BACKGROUND_SLICE_SECONDS)
        self._turns = turns

    def take_next_turn(self) -> None:
        """The step of the next turn is the caller's."""
        self._turns.take_next()

    def _turn_ends_at(self, now: float) -> float:
        """What else was done in this turn counts: an append is a slice's worth."""
        return self._turns.began + self._slice_seconds if self._turns.number else super()._turn_ends_at(now)

    def _turn(self) -> None:
        """A slice of one job or of several, until one of them ends: whoever waited for it has the next turn."""
        if self._turns.is_taken:
            self._schedule()
            return
        self._turns.take()
        until = self._clock() + self._slice_seconds
        try:
            for _ in range(len(self._jobs)):
                if self._step(until - self._clock()):
                    self._turns.take_next()
                    break
                if self._clock() >= until:
                    break
        finally:
            self._schedule()

    def _schedule(self) -> None:
        if self._jobs:
            asyncio.get_running_loop().call_soon(self._turn)
