"""Producer ids, never given twice: whole blocks are reserved in the metadata log and handed out from memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import ProducerIdsRecord, Record
from tidemark.broker.metadata.store import MetadataStore

BLOCK: Final = 1000


Allocate = Callable[[], Awaitable[int]]


async def reserve(store: MetadataStore) -> int:
    """On the controller: the first id of a block that no other broker gets."""
    begin = 0

    def decide(image: Image) -> list[Record]:
        nonlocal begin
        begin = image.next_producer_id
        return [ProducerIdsRecord(next_producer_id=begin + BLOCK)]

    await store.change(decide)
    return begin


class ProducerIds:
    def __init__(self, allocate: Allocate) -> None:
        """`allocate` gives the first id of a new block."""
        self._allocate = allocate
        self._next = self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                begin = await self._allocate()
                self._next, self._end = begin, begin + BLOCK
            self._next += 1
            return self._next - 1
