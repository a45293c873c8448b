"""A few at a time, as a semaphore lets them in; but of those who wait, each client is let in in turn, however many
requests it has in line."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class FairTurns:
    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client: the one whose turn is next first

    @contextlib.asynccontextmanager
    async def turn_of(self, client: str) -> AsyncIterator[None]:
        await self._enter(client)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, client: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # it was let in at the same moment
            raise

    def _leave(self) -> None:
        while self._waiting:
            client, turns = next(iter(self._waiting.items()))
            turn = turns.popleft()
            del self._waiting[client]
            if turns:
                self._waiting[client] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1
