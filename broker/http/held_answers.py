"""What answers hold in memory, from the first record that becomes JSON until their clients have read it. There is room
for so many bytes of all of them together. If they are more, someone is cut off: of the client whose answers hold most,
whoever has kept us waiting longest, so that nobody is cut off for what another asks for. Reads that are under way end
with what they have, and others begin when there is room again. Clients that read are done before it is their turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Protocol

from tidemark.broker.core.ordered_set import OrderedSet


class Holder(Protocol):
    """Who counts what an answer holds: a connection."""

    @property
    def held_bytes(self) -> int: ...

    def hold(self, size_bytes: int) -> None: ...

    def release(self, size_bytes: int) -> None: ...


class Uncounted:
    """Of a request that came over no connection."""

    held_bytes = 0

    def hold(self, size_bytes: int) -> None: ...

    def release(self, size_bytes: int) -> None: ...


class Reader(Protocol):
    @property
    def held_bytes(self) -> int: ...

    @property
    def host(self) -> str:
        """Whose it is: an address, as for connections."""
        ...

    def abort(self) -> None: ...


class HeldAnswers:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0
        self._blocked: OrderedSet[Reader] = OrderedSet()  # the one that does not read for longest first
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_bytes = 0  # that those who wait for room hold themselves

    @property
    def is_full(self) -> bool:
        return self.used_bytes - self._waiting_bytes >= self._limit_bytes

    def count(self, size_bytes: int) -> None:
        self.used_bytes += size_bytes
        if self.used_bytes > self._limit_bytes:
            self._cut_off(self.used_bytes - self._limit_bytes)

    def release(self, size_bytes: int) -> None:
        self.used_bytes -= size_bytes
        while self._waiting and not self.is_full:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return  # it calls the next one

    async def room(self, own_bytes: int = 0) -> None:
        """Wait until there is room for more. `own_bytes`: what the caller holds already; it is no reason to wait, or
        those who wait would wait for each other."""
        while self.used_bytes - self._waiting_bytes - own_bytes >= self._limit_bytes:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            self._waiting_bytes += own_bytes
            self._cut_off(1)
            try:
                await waiting
            finally:
                self._waiting_bytes -= own_bytes
                self.release(0)

    def _cut_off(self, too_many_bytes: int) -> None:
        while too_many_bytes > 0 and self._blocked:
            reader = self._next_to_go()
            self._blocked.discard(reader)
            too_many_bytes -= reader.held_bytes
            reader.abort()  # which releases what it holds

    def _next_to_go(self) -> Reader:
        held: Counter[str] = Counter()
        for each in self._blocked:
            held[each.host] += each.held_bytes
        most = max(held, key=held.__getitem__)
        return next(each for each in self._blocked if each.host == most)

    def blocked(self, reader: Reader) -> None:
        self._blocked.add(reader)
        if self._waiting:
            self._cut_off(1)

    def unblocked(self, reader: Reader) -> None:
        self._blocked.discard(reader)
