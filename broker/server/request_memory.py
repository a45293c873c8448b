"""A budget of bytes for requests that are still arriving, shared by all connections.

What counts is what has arrived, not what was announced: a length costs its sender nothing. So a request is under way
before it is known whether there is room for all of it, and one may always go on, however large: a limit must not be a
deadlock. Should that one dawdle, `relieve` gives its place to the next.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Receiver(Protocol):
    """A connection in the middle of a request."""

    def room_granted(self) -> bool:
        """It may read on. False: it is not wanted any more."""
        ...


class MemoryBudget:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._waiting: deque[Receiver] = deque()
        self._exempt: Receiver | None = None  # the one that may go on although there is no room

    def count(self, size: int, receiver: Receiver) -> bool:
        """`size` more bytes have arrived. Whether there is room for more of the same."""
        self.used_bytes += size
        return self.used_bytes <= self.limit_bytes or receiver is self._exempt

    @property
    def is_exceeded(self) -> bool:
        return self.used_bytes > self.limit_bytes

    def await_room(self, receiver: Receiver) -> None:
        """Waiters are called in order, when they may go on."""
        self._waiting.append(receiver)
        self._grant()

    def release(self, size: int, receiver: Receiver) -> None:
        """Its request is complete, or it is gone."""
        self.used_bytes -= size
        if receiver is self._exempt:
            self._exempt = None
        if self._waiting:
            self._grant()

    def relieve(self) -> None:
        """To be called now and then: while some wait, no other stays exempt for long."""
        if self._waiting:
            self._exempt = None
            self._grant()

    def _grant(self) -> None:
        while self._waiting and (self.used_bytes <= self.limit_bytes or self._exempt is None):
            receiver = self._waiting.popleft()
            if receiver.room_granted() and self.used_bytes > self.limit_bytes:
                self._exempt = receiver
