"""All metrics of a node, collected one part after the other: no scrape holds up the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidemark.broker.core.sliced_work import finished_in_background
from tidemark.broker.metrics.exposition import Collected, Exposition


class Collector(Protocol):
    def collect(self) -> Collected: ...


class Metrics:
    def __init__(self, collectors: Sequence[Collector], *, watch_clients: Callable[[], None]) -> None:
        """`watch_clients`: from then on, for a while, it is counted what each client uses."""
        self._collectors = collectors
        self.watch_clients = watch_clients

    async def exposition(self, *, open_metrics: bool) -> tuple[str, bytes]:
        """The content type, and the text."""
        written = Exposition(open_metrics=open_metrics)
        for collector in self._collectors:
            for metric, samples in await finished_in_background(collector.collect()):
                await finished_in_background(written.write(metric, samples))
        return written.content_type, written.finish()
