"""All metrics of a node, collected one part after the other: no scrape holds up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from tidemark.broker.core.sliced_work import Job, finished_in_background
from tidemark.broker.metrics.exposition import Collected, Exposition


class Collector(Protocol):
    def collect(self) -> Collected: ...


class Metrics:
    def __init__(self, collectors: Sequence[Collector], *, watch_clients: Callable[[], None]) -> None:
        """`watch_clients`: from then on, for a while, it is counted what each client uses."""
        self._collectors = collectors
        self.watch_clients = watch_clients
        self._under_way: dict[bool, asyncio.Future[tuple[str, bytes]]] = {}

    async def exposition(self, *, open_metrics: bool) -> tuple[str, bytes]:
        """The content type, and the text. Those who ask at the same time get the same: it may be megabytes."""
        under_way = self._under_way.get(open_metrics)
        if under_way is None:
            under_way = self._under_way[open_metrics] = asyncio.ensure_future(self._collected(open_metrics))
            under_way.add_done_callback(lambda _: self._under_way.pop(open_metrics))
        return await asyncio.shield(under_way)

    async def _collected(self, open_metrics: bool) -> tuple[str, bytes]:
        written = Exposition(open_metrics=open_metrics)
        await finished_in_background(self._write(written))
        return written.content_type, written.finish()

    def _write(self, written: Exposition) -> Job[None]:
        for collector in self._collectors:
            for metric, samples in (yield from collector.collect()):
                yield from written.write(metric, samples)
