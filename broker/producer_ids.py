"""Producer ids, never given twice: whole blocks are reserved in the metadata log and handed out from memory."""

from __future__ import annotations

import asyncio
from typing import Final

from broker.metadata.image import Image
from broker.metadata.records import ProducerIdsRecord, Record
from broker.metadata.store import MetadataStore

BLOCK: Final = 1000


class ProducerIds:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                await self._reserve()
            self._next += 1
            return self._next - 1

    async def _reserve(self) -> None:
        begin = 0

        def decide(image: Image) -> list[Record]:
            nonlocal begin
            begin = image.next_producer_id
            return [ProducerIdsRecord(next_producer_id=begin + BLOCK)]

        await self._store.change(decide)
        self._next, self._end = begin, begin + BLOCK
