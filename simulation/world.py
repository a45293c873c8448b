"""One clock, one queue of events and one source of chance for everything that is simulated.

Nothing here waits: the clock jumps to the next event. What happens, and in which order, follows from the seed alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

EPOCH_SECONDS: Final = 1_800_000_000  # what wall clocks show when a world begins
EVENTS_PER_SECOND_MAX: Final = 200_000  # of virtual time; more is a loop that never rests


class WorldStuck(Exception):
    """Events without end, and no time passes."""


class Event:
    """Something that will happen, unless it is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class World:
    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = Random(f"world {seed}")
        self.events = 0
        self.after_event: Callable[[], None] | None = None
        self.timeline: list[tuple[float, str, str]] = []
        self.listeners: list[Callable[[float, str, str], None]] = []
        self.trace_to: Callable[[str], object] | None = None
        self._queue: list[tuple[float, int, Event]] = []
        self._count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._watched = (0.0, 0)

    def new_random(self, name: str) -> Random:
        """Chance for one part of the world: what it draws does not change what others draw."""
        return Random(f"{name} {self.seed}")

    def at(self, time: float, action: Callable[[], None]) -> Event:
        event = Event(action)
        self._count += 1
        heappush(self._queue, (time if time > self.now else self.now, self._count, event))
        return event

    def after(self, seconds: float, action: Callable[[], None]) -> Event:
        return self.at(self.now + seconds, action)

    def step(self) -> bool:
        """The next event; false if there is none."""
        while self._queue:
            time, _, event = heappop(self._queue)
            action = event.action
            if action is None:
                continue
            self.now = time
            self.events += 1
            action()
            if self.after_event is not None:
                self.after_event()
            return True
        return False

    def run(self, *, until: float, done: Callable[[], bool] | None = None) -> None:
        """Lets time pass, up to a moment, or until `done`."""
        while self._queue and self._queue[0][0] <= until:
            if done is not None and done():
                return
            self.step()
            self._check_progress()
        if done is None or not done():
            self.now = max(self.now, until)

    def _check_progress(self) -> None:
        since, events = self._watched
        if self.now - since >= 1.0:
            self._watched = (self.now, self.events)
        elif self.events - events > EVENTS_PER_SECOND_MAX:
            raise WorldStuck(f"{EVENTS_PER_SECOND_MAX} events within a second of virtual time, at {self.now:.3f}")

    # What happened

    def note(self, who: str, what: str) -> None:
        """A line for the reader of the timeline."""
        self.timeline.append((self.now, who, what))
        self.trace(who, what)
        for listener in self.listeners:
            listener(self.now, who, what)

    def trace(self, *what: Any) -> None:
        """A step for the digest: two runs of a seed must agree on all of them."""
        line = f"{self.now!r} {what!r}\n"
        self._digest.update(line.encode())
        if self.trace_to is not None:
            self.trace_to(line)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
