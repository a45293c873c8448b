"""What keeps a cluster alive is served before what can wait, however many clients ask at once.

An event loop serves every socket that is ready in one turn, in any order. With 200 clients that send without a pause
such a turn takes seconds, and a node whose heartbeats and votes wait that long loses its lease. Here the sockets of
clients are a crowd: in each turn all others come first (other nodes, the controller's listener, what threads have
finished), and then so many of the crowd as fit into a few milliseconds, in turn. The rest is still ready next time.
They share these milliseconds: a flood that comes suddenly makes no long turn, either, before it is known for one.

HTTP's sockets are behind the crowd: one of them is served in each turn, after everybody else.

While fewer than `CROWD_MIN` sockets are ready, all of this is a length and a comparison.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Final

from tidemark.broker.core.sliced_work import BACKGROUND_SLICE_SECONDS, SlicedWork
from tidemark.environment import monotonic

CROWD_MIN: Final = 8
TURN_SECONDS: Final = 0.01  # of clients, that others wait for at most; one request may take longer
BACKGROUND_MAX: Final = 1  # of the sockets behind the crowd in one turn: what it brings is read, and answered later
LIMIT_MAX: Final = 64  # of the crowd in one turn
SLICE_SECONDS_MAX: Final = 0.002  # of requests that arrived together, before other connections have their turn

Event = tuple[selectors.SelectorKey, int]


class Turn:
    """Of an event loop. For how long it serves one connection before the others: less, the more of them there are."""

    __slots__ = ("began", "is_timed", "slice_seconds")

    def __init__(self) -> None:
        self.slice_seconds = SLICE_SECONDS_MAX
        self.is_timed = False  # somebody wants to know when it began
        self.began = 0.0  # when it was known which sockets are ready


class CrowdSelector(selectors.DefaultSelector):
    """How many of the crowd are served in a turn follows from how long the last turns took."""

    def __init__(self) -> None:
        super().__init__()
        self.crowd: set[int] = set()  # descriptors of sockets that can wait
        self.background: set[int] = set()  # and of those that wait for the crowd, too
        self.turn = Turn()
        self._limit = LIMIT_MAX
        self._last = -1  # of the crowd, the descriptor that was served last
        self._last_background = -1
        self._served = 0  # of the crowd, in the turn that is measured; 0: none is
        self._began = 0.0

    def select(self, timeout: float | None = None) -> list[Event]:
        if self._served:
            self._measure()
        events = super().select(timeout)
        if self.turn.is_timed:
            self.turn.began = monotonic()
        if self.background and len(events) > 1:
            events = self._few_of_background_last(events)
        if len(events) < CROWD_MIN:
            self.turn.slice_seconds = SLICE_SECONDS_MAX
            return events
        chosen = self._chosen(events)
        self.turn.slice_seconds = min(SLICE_SECONDS_MAX, TURN_SECONDS / max(self._served, 1))
        return chosen

    def _measure(self) -> None:
        """Of the turn that has just ended."""
        seconds = monotonic() - self._began
        if seconds > TURN_SECONDS:
            self._limit = max(int(self._served * TURN_SECONDS / seconds), 1)
        elif seconds < TURN_SECONDS / 2:
            self._limit = min(self._limit * 2, LIMIT_MAX)
        self._served = 0

    def _few_of_background_last(self, events: list[Event]) -> list[Event]:
        behind = [event for event in events if event[0].fd in self.background]
        if not behind:
            return events
        if len(behind) > BACKGROUND_MAX:
            last = self._last_background
            behind.sort(key=lambda event: (event[0].fd <= last, event[0].fd))
            del behind[BACKGROUND_MAX:]
            self._last_background = behind[-1][0].fd
        return [*(event for event in events if event[0].fd not in self.background), *behind]

    def _chosen(self, events: list[Event]) -> list[Event]:
        crowd = [event for event in events if event[0].fd in self.crowd]
        self._began, self._served = monotonic(), len(crowd)
        if len(crowd) == len(events) <= self._limit:
            return events
        behind = [event for event in events if event[0].fd in self.background]
        first = [event for event in events if event[0].fd not in self.crowd and event[0].fd not in self.background]
        if len(crowd) <= self._limit:
            return first + crowd + behind
        crowd.sort(key=lambda event: (event[0].fd <= self._last, event[0].fd))  # those after the last one come first
        del crowd[self._limit :]
        self._last, self._served = crowd[-1][0].fd, len(crowd)
        return first + crowd + behind


class BrokerLoop(asyncio.SelectorEventLoop):
    """An event loop that knows which sockets can wait."""

    def __init__(self, selector: CrowdSelector | None = None) -> None:
        self.selector = CrowdSelector() if selector is None else selector
        self.shared_work = SlicedWork()  # of all coroutines that work in slices
        self.background_work = SlicedWork(slice_seconds=BACKGROUND_SLICE_SECONDS)
        super().__init__(self.selector)

    @property
    def crowd(self) -> set[int]:
        return self.selector.crowd

    @property
    def background(self) -> set[int]:
        return self.selector.background

    @property
    def turn(self) -> Turn:
        return self.selector.turn
