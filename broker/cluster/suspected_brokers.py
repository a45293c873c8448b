"""Brokers that may be dead, and the probes that find out.

A broker whose connection closes is suspected: its process may have ended. A probe connects to its address. If the
connection is refused, the process is gone and the controller fences the broker at once, without waiting for its session
to run out.

While a broker is suspected, Metadata requests wait for the outcome. A client whose leader dies asks at once who leads
now: answered at once, it hears the old leader again, and some clients then do not ask again for a second or more; kept
waiting for the few milliseconds until the controller has decided, it hears the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidemark.broker.cluster.probing import is_gone
from tidemark.broker.metadata.image import BrokerImage, Image

WAIT_SECONDS_MAX: Final = 1.0
SUSPECTED_SECONDS_MAX: Final = 3.0  # if the controller has not fenced a broker by then, it knows better

IsGone = Callable[[str, int], Awaitable[bool]]
ReportGone = Callable[[BrokerImage, str], Awaitable[None]]  # the broker, and how it is known


class SuspectedBrokers:
    def __init__(
        self, *, listener: str, image: Callable[[], Image], report_gone: ReportGone, is_gone: IsGone = is_gone
    ) -> None:
        """`listener`: the one by which brokers reach each other. `report_gone` is called for every broker that a probe
        finds to be gone."""
        self._listener = listener
        self._image = image
        self._report_gone = report_gone
        self._is_gone = is_gone
        self._suspected: dict[int, int] = {}  # broker id -> its epoch
        self._probes: dict[tuple[int, int], asyncio.Task[None]] = {}  # (broker id, its epoch)
        self._changed = asyncio.Event()

    def __bool__(self) -> bool:
        return bool(self._suspected)

    def suspect(self, broker_id: int) -> None:
        """A connection to this broker, or from it, was closed."""
        broker = self._image().brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            self._suspected.setdefault(broker_id, broker.broker_epoch)
            self.probe(broker_id)

    def probe(self, broker_id: int) -> None:
        """Find out whether a broker is gone, without keeping clients waiting for the outcome."""
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced or (broker_id, broker.broker_epoch) in self._probes:
            return
        key = (broker_id, broker.broker_epoch)
        task = self._probes[key] = asyncio.create_task(self._run_probe(broker))
        task.add_done_callback(lambda _task: self._probes.pop(key, None))

    async def _run_probe(self, broker: BrokerImage) -> None:
        endpoint = broker.endpoints.get(self._listener)
        suspected_seconds = 0.0
        try:
            if endpoint is not None and await self._is_gone(endpoint.host, endpoint.port):
                suspected_seconds = SUSPECTED_SECONDS_MAX
                await self._report_gone(broker, f"nothing listens at {endpoint.host}:{endpoint.port} any more")
        finally:
            loop = asyncio.get_running_loop()
            loop.call_later(suspected_seconds, self._clear, broker.broker_id, broker.broker_epoch)

    def follow(self, old: Image, new: Image) -> None:
        if self._suspected and old.brokers is not new.brokers:
            for broker_id, epoch in list(self._suspected.items()):
                broker = new.brokers.get(broker_id)
                if broker is None or broker.fenced or broker.broker_epoch != epoch:
                    self._clear(broker_id, epoch)

    def _clear(self, broker_id: int, epoch: int) -> None:
        if self._suspected.get(broker_id) == epoch:
            del self._suspected[broker_id]
            self._changed.set()
            self._changed = asyncio.Event()

    async def wait_until_none(self) -> None:
        """Returns when no broker is suspected any more, or it takes too long."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while self._suspected:
                    await self._changed.wait()
        except TimeoutError:
            pass

    def close(self) -> None:
        for task in list(self._probes.values()):
            task.cancel()
