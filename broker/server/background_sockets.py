"""Sockets that are served behind all others: HTTP's.

They have a selector of their own, which is one entry in that of the event loop, so that hundreds of them that are ready
cost a turn of the loop no more than one does. In a turn one of them is read, in the order in which they became ready;
and none in a turn that works at what was read before: a client of Kafka waits for one such step, not for two.
"""

from __future__ import annotations

import contextlib
import selectors
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from tidemark.broker.core.background_work import BackgroundTurns

Event = tuple[selectors.SelectorKey, int]

# Turns in which none of them is read because there is other work. Of hundreds that send at once the last waits for all:
# with 16, health behind 480 streams was told after six seconds.
PASSED_MAX: Final = 2


class BackgroundSockets:
    def __init__(self, turns: BackgroundTurns) -> None:
        self._turns = turns
        self.selector = selectors.DefaultSelector()
        self.descriptors: set[int] = set()
        self.is_busy: Callable[[], bool] = lambda: False  # whether the next turn has other work of theirs
        self._ready: deque[tuple[int, int]] = deque()  # descriptors, with what they are ready for
        self._passed = 0

    def owns(self, fileobj: Any) -> bool:
        return type(fileobj) is int and fileobj in self.descriptors

    def forget(self, descriptor: int) -> None:
        self.descriptors.discard(descriptor)
        with contextlib.suppress(KeyError):
            self.selector.unregister(descriptor)

    @property
    def has_ready(self) -> bool:
        """Whether some are known to be ready: nobody need wait for that."""
        return bool(self._ready)

    def next_event(self) -> Event | None:
        if self._turns.is_taken or (self._passed < PASSED_MAX and self.is_busy()):
            self._passed += 1
            return None
        if not self._ready:
            self._ready.extend((key.fd, events) for key, events in self.selector.select(0))
        registered = self.selector.get_map()
        while self._ready:
            descriptor, events = self._ready.popleft()
            key = registered.get(descriptor)
            if key is not None and key.events & events:  # it still wants to know
                self._passed = 0
                self._turns.take()
                return key, key.events & events
        return None

    def close(self) -> None:
        self.selector.close()
