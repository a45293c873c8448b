"""One clock, one queue of events and one source of chance for everything that is simulated.

Nothing here waits: the clock jumps to the next event. What happens, and in which order, follows from the seed alone.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any, Final
from zlib import crc32

EPOCH_SECONDS: Final = 1_800_000_000  # what wall clocks show when a world begins
EVENTS_PER_SECOND_MAX: Final = 200_000  # of virtual time; more is a loop that never rests
TRACED_MAX: Final = 4096  # numbers, until they go into the digest


class WorldStuck(Exception):
    """Events without end, and no time passes."""


class Event(list[Any]):
    """Something that will happen, unless it is cancelled: when, its number and the action. It is the queue's own entry,
    because there is one for everything that happens."""

    __slots__ = ()

    def cancel(self) -> None:
        self[2] = None


class World:
    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.now = 0.0
        self.random = Random(f"world {seed}")
        self.events = 0
        self.timeline: list[tuple[float, str, str]] = []
        self.listeners: list[Callable[[float, str, str], None]] = []
        self.trace_to: Callable[[str], object] | None = None
        self._queue: list[Event] = []
        self._count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._traced = array("d")
        self._progress = (0.0, 0)
        self.watch(None)

    def new_random(self, name: str) -> Random:
        """Chance for one part of the world: what it draws does not change what others draw."""
        return Random(f"{name} {self.seed}")

    def at(self, time: float, action: Callable[[], None]) -> Event:
        self._count += 1
        event = Event((time if time > self.now else self.now, self._count, action))
        heappush(self._queue, event)
        return event

    def after(self, seconds: float, action: Callable[[], None]) -> Event:
        return self.at(self.now + seconds, action)

    def run(self, *, until: float, done: Callable[[], bool] | None = None) -> None:
        """Lets time pass, up to a moment, or until `done`."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            if done is not None and done():
                return
            time, _, action = heappop(queue)
            if action is None:
                continue
            self.now = time
            self.events += 1
            action()
            if self.events >= self._next_look:
                self._look()
        if done is None or not done():
            self.now = max(self.now, until)

    def watch(self, look: Callable[[], None] | None, *, every_events: int = 1) -> None:
        """Has somebody look at everything, each time that so many things have happened."""
        self._watcher, self._every = look, every_events
        self._next_look = self.events + (1000 if look is None else every_events)

    def _look(self) -> None:
        since, events = self._progress
        if self.now - since >= 1.0:
            self._progress = (self.now, self.events)
        elif self.events - events > EVENTS_PER_SECOND_MAX:
            raise WorldStuck(f"{EVENTS_PER_SECOND_MAX} events within a second of virtual time, at {self.now:.3f}")
        self.watch(self._watcher, every_events=self._every)
        if self._watcher is not None:
            self._watcher()

    # What happened

    def note(self, who: str, what: str) -> None:
        """A line for the reader of the timeline."""
        self.timeline.append((self.now, who, what))
        self.trace(who, what)
        for listener in self.listeners:
            listener(self.now, who, what)

    def trace(self, *what: Any) -> None:
        """A step for the digest: two runs of a seed must agree on all of them."""
        self._digest_traced()
        line = f"{self.now!r} {what!r}\n"
        self._digest.update(line.encode())
        if self.trace_to is not None:
            self.trace_to(line)

    def trace_sent(self, connection: int, data: bytes) -> None:
        """As `trace`, of what is sent over the network: there is more of it than of anything else."""
        checksum = crc32(data)
        self._traced.extend((self.now, connection, len(data), checksum))
        if self.trace_to is not None:
            self.trace_to(f"{self.now!r} connection {connection}: {len(data)} bytes, {checksum:08x}\n")
        if len(self._traced) > TRACED_MAX:
            self._digest_traced()

    def _digest_traced(self) -> None:
        if self._traced:
            self._digest.update(self._traced)
            del self._traced[:]

    @property
    def digest(self) -> str:
        self._digest_traced()
        return self._digest.hexdigest()
