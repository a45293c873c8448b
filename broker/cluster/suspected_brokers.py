"""Brokers that are probably dead, before the controller has said so.

A client whose leader dies asks at once who leads now. Answered at once, it hears the old leader again, and some clients
then do not ask for a second or more; kept waiting for the few milliseconds until the controller has decided, it hears
the new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from tidemark.broker.metadata.image import BrokerImage, Image

log = logging.getLogger(__name__)

WAIT_SECONDS_MAX: Final = 1.0
KEPT_SECONDS_MAX: Final = 3.0  # if the controller has not fenced it by then, it knows better


class SuspectedBrokers:
    def __init__(
        self, *, listener: str, image: Callable[[], Image], is_gone: Callable[[str, int], Awaitable[bool]]
    ) -> None:
        self._listener = listener
        self._image = image
        self._is_gone = is_gone
        self._suspects: dict[int, int] = {}  # broker id -> its epoch
        self._tasks: set[asyncio.Task[None]] = set()
        self._cleared = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def note(self, broker_id: int) -> None:
        """A connection to it, or from it, was closed."""
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id in self._suspects:
            return
        self._suspects[broker_id] = broker.broker_epoch
        task = asyncio.create_task(self._find_out(broker))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _find_out(self, broker: BrokerImage) -> None:
        endpoint = broker.endpoints.get(self._listener)
        try:
            if endpoint is not None and await self._is_gone(endpoint.host, endpoint.port):
                await asyncio.sleep(KEPT_SECONDS_MAX)
        finally:
            self._clear(broker.broker_id)

    def follow(self, old: Image, new: Image) -> None:
        if self._suspects and old.brokers is not new.brokers:
            for broker_id, epoch in list(self._suspects.items()):
                broker = new.brokers.get(broker_id)
                if broker is None or broker.fenced or broker.broker_epoch != epoch:
                    self._clear(broker_id)

    def _clear(self, broker_id: int) -> None:
        self._suspects.pop(broker_id, None)
        self._cleared.set()
        self._cleared = asyncio.Event()

    async def settled(self) -> None:
        """Returns when it is known what has become of them, or it takes too long."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while self._suspects:
                    await self._cleared.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
