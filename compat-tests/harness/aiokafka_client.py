"""aiokafka as the suites use it: no groups, explicit partitions and offsets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

SECONDS_MAX = 30


@asynccontextmanager
async def producer(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    sender = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=1, **settings)
    await sender.start()
    try:
        yield sender
    finally:
        await sender.stop()


@asynccontextmanager
async def consumer(bootstrap: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    reader = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, fetch_max_wait_ms=100, **settings
    )
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


async def produce_all(
    bootstrap: str, topic: str, values: list[bytes | None], *, partition: int = 0, **settings: Any
) -> list[Any]:
    """Sends and waits for every acknowledgement."""
    async with producer(bootstrap, **settings) as sender:
        futures = [await sender.send(topic, value, partition=partition) for value in values]
        return list(await asyncio.wait_for(asyncio.gather(*futures), SECONDS_MAX))


async def read(reader: AIOKafkaConsumer, count: int, *, seconds_max: float = SECONDS_MAX) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + seconds_max
    while len(records) < count:
        for polled in (await reader.getmany(timeout_ms=200, max_records=count - len(records))).values():
            records.extend(polled)
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {seconds_max} s"
    return records


async def read_from(bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Any]:
    async with consumer(bootstrap) as reader:
        target = TopicPartition(topic, partition)
        reader.assign([target])
        reader.seek(target, offset)
        return await read(reader, count)
