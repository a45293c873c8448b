"""A compacted topic: of every key the last acknowledged value stays, at its offset, whatever the cleaner does."""

from __future__ import annotations

import asyncio
from typing import Final

from cluster_simulation.clients import Producer
from cluster_simulation.history import Anomaly, History, Place
from tidemark.protocol.records import Record

TOPIC: Final = "table"
KEYS: Final = 4
CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "1500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "1000",
}


class KeyedProducer(Producer):
    """Writes each key again and again, with a number that grows."""

    async def run(self) -> None:
        await self.init()
        place = (TOPIC, 0)
        while not self.stopping:
            values = self.new_records(place, None)
            await self.produce(place, values)
            await asyncio.sleep(self.random.random() * 2 * self.pause_seconds)

    def record(self, value: bytes, now: int) -> Record:
        number = self.history.sent[value].number
        return Record(timestamp=now, key=f"{self.name} {number % KEYS}".encode(), value=value)


def check_compacted(history: History, place: Place, final: dict[int, bytes]) -> None:
    """What is there was sent, in order; the last acknowledged of every key, or a later one, is there."""
    last: dict[tuple[str, int], int] = {}
    for offset, value in sorted(final.items()):
        sent = history.sent[value]
        key = (sent.producer, sent.number % KEYS)
        if sent.offset is not None and sent.offset != offset:
            raise Anomaly(f"{place}: {value[:40]!r}, acknowledged at {sent.offset}, is at {offset}")
        if sent.number <= last.get(key, -1):
            raise Anomaly(f"{place} offset {offset}: {value[:40]!r} follows a later one of its key")
        last[key] = sent.number
    for value, sent in history.sent.items():
        if sent.place == place and sent.offset is not None:
            key = (sent.producer, sent.number % KEYS)
            if last.get(key, -1) < sent.number:
                raise Anomaly(f"{place}: {value[:40]!r} was acknowledged, and of its key there is {last.get(key)} now")
