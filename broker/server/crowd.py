"""What keeps a cluster alive is served before what can wait, however many clients ask at once.

An event loop serves every socket that is ready in one turn, in any order. With 200 clients that send without a pause
such a turn takes seconds, and a node whose heartbeats and votes wait that long loses its lease. Here the sockets of
clients are a crowd: in each turn all others come first (other nodes, the controller's listener, what threads have
finished), and then so many of the crowd as fit into a few milliseconds, in turn. The rest is still ready next time.
They share these milliseconds: a flood that comes suddenly makes no long turn, either, before it is known for one.

HTTP's sockets are behind the crowd (`background_sockets`).

While fewer than `CROWD_MIN` sockets are ready, all of this is a length and a comparison.
"""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tidemark import portable
from tidemark.broker.core.background_work import BackgroundTurns, BackgroundWork
from tidemark.broker.core.sliced_work import SlicedWork
from tidemark.broker.server.background_sockets import BackgroundSockets, Event
from tidemark.environment import monotonic

CROWD_MIN: Final = 8
TURN_SECONDS: Final = 0.01  # of clients, that others wait for at most; one request may take longer
LIMIT_MAX: Final = 64  # of the crowd in one turn
SCHEDULED_SECONDS: Final = 0.0001  # the shortest turn on a processor that Linux gives
READY: Final = "_ready"  # what asyncio's own event loop calls its list of calls; where it has none, see below
SLICE_SECONDS_MAX: Final = 0.002  # of requests that arrived together, before other connections have their turn


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
        self.background: BackgroundSockets | None = None  # those that wait for the crowd, too, once there are some
        self.background_turns = BackgroundTurns()
        self.turn = Turn()
        self._limit = LIMIT_MAX
        self._last = -1  # of the crowd, the descriptor that was served last
        self._served = 0  # of the crowd, in the turn that is measured; 0: none is
        self._began = 0.0

    def select(self, timeout: float | None = None) -> list[Event]:
        if self._served:
            self._measure()
        if self.background is not None:
            return self._select_with_background(self.background, timeout)
        return self._select(timeout)

    def _select(self, timeout: float | None) -> list[Event]:
        events = super().select(timeout)
        if self.turn.is_timed:
            self.turn.began = monotonic()
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

    def _select_with_background(self, background: BackgroundSockets, timeout: float | None) -> list[Event]:
        events = self._select(0 if background.has_ready else timeout)
        self.background_turns.begin(monotonic())
        is_ready = background.has_ready
        for index, (key, _) in enumerate(events):
            if key.fileobj is background.selector:
                del events[index]
                is_ready = True
                break
        if is_ready and (event := background.next_event()) is not None:
            events.append(event)
        return events

    def _chosen(self, events: list[Event]) -> list[Event]:
        crowd = [event for event in events if event[0].fd in self.crowd]
        self._began, self._served = monotonic(), len(crowd)
        if len(crowd) == len(events) <= self._limit:
            return events
        first = [event for event in events if event[0].fd not in self.crowd]
        if len(crowd) <= self._limit:
            return first + crowd
        crowd.sort(key=lambda event: (event[0].fd <= self._last, event[0].fd))  # those after the last one come first
        del crowd[self._limit :]
        self._last, self._served = crowd[-1][0].fd, len(crowd)
        return first + crowd

    # -- sockets behind the crowd ------------------------------------------

    def put_behind(self, descriptor: int, *, is_busy: Callable[[], bool]) -> None:
        """From now on it is served after everybody else, and not in a turn that `is_busy`."""
        if self.background is None:
            self.background = BackgroundSockets(self.background_turns)
            super().register(self.background.selector, selectors.EVENT_READ)
        self.background.is_busy = is_busy
        self.background.descriptors.add(descriptor)
        if descriptor in self.get_map():
            key = super().unregister(descriptor)
            self.background.selector.register(descriptor, key.events, key.data)

    def forget_behind(self, descriptor: int) -> None:
        if self.background is not None:
            self.background.forget(descriptor)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.background is not None and self.background.owns(fileobj):
            return self.background.selector.register(fileobj, events, data)
        return super().register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        if self.background is not None and self.background.owns(fileobj):
            return self.background.selector.unregister(fileobj)
        return super().unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.background is not None and self.background.owns(fileobj):
            return self.background.selector.modify(fileobj, events, data)
        return super().modify(fileobj, events, data)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        if self.background is not None and self.background.owns(fileobj):
            return self.background.selector.get_key(fileobj)
        return super().get_key(fileobj)

    def descriptors(self) -> list[int]:
        """All that are registered."""
        of_background = () if self.background is None else self.background.selector.get_map().values()
        return [key.fd for key in (*self.get_map().values(), *of_background)]

    def close(self) -> None:
        if self.background is not None:
            self.background.close()
        super().close()


class BrokerLoop(asyncio.SelectorEventLoop):
    """An event loop that knows which sockets can wait."""

    def __init__(self, selector: CrowdSelector | None = None) -> None:
        self.selector = CrowdSelector() if selector is None else selector
        self.shared_work = SlicedWork()  # of all coroutines that work in slices
        self.background_work = BackgroundWork(self.selector.background_turns)
        super().__init__(self.selector)

    def _process_events(self, events: list[Event]) -> None:
        """Called by `asyncio`, which puts what sockets are ready for behind all that was to be called in this turn.
        Where there is HTTP, that is the next step of it: here sockets come first, so that a request of Kafka's which
        arrived during one step need not wait for another. Tasks go on by `call_soon`, so only that list can tell. An
        event loop that keeps it elsewhere serves all the same, and Kafka's requests may wait for two steps."""
        ready = None if self.selector.background is None else getattr(self, READY, None)
        waiting = len(ready) if isinstance(ready, deque) else 0
        super()._process_events(events)  # type: ignore[misc]
        if waiting:
            assert ready is not None
            ready.rotate(len(ready) - waiting)

    def take_short_turns(self) -> bool:
        """Whether from now on this thread is let in as soon as it is woken, and for a short time only: there are others
        that want the processors. It is not asked for before: that takes ten milliseconds and two megabytes."""
        return portable.take_short_turns(SCHEDULED_SECONDS)

    @property
    def crowd(self) -> set[int]:
        return self.selector.crowd

    @property
    def turn(self) -> Turn:
        return self.selector.turn
