"""Fetches that wait for `min_bytes`, and fetches of very many partitions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tidemark.broker.handlers.fetch.reading import Reading
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

VERSION = 12
PARTITIONS = 50


def fetch_all(topic: str, partitions: int, *, min_bytes: int, max_bytes: int = 1 << 30) -> FetchRequest:
    asked = [FetchPartition(partition=each, partition_max_bytes=1 << 20) for each in range(partitions)]
    topics = [FetchTopic(topic=topic, partitions=asked)]
    return FetchRequest(max_wait_ms=5_000, min_bytes=min_bytes, max_bytes=max_bytes, topics=topics)


async def test_an_append_re_reads_only_its_own_partition(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    consumer, producer = await connect(node), await connect(node)
    await consumer.create("t", partitions=PARTITIONS)
    consumer.send(fetch_all("t", PARTITIONS, min_bytes=4_000), VERSION)
    partition = node._replicas.table.leader_of("t", 0)
    async with asyncio.timeout(5):
        while not partition.watchers:
            await asyncio.sleep(0.001)
    reads = 0
    real = Reading._read_one

    def read_one(*arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return real(*arguments)

    monkeypatch.setattr(Reading, "_read_one", read_one)
    for number in range(20):
        await producer.produce("t", bytes(150), partition=number)
    answer = await asyncio.wait_for(consumer.receive(FetchResponse, VERSION), 10)
    sizes = [len(each.records) for each in answer.responses[0].partitions]
    assert sum(sizes) >= 4_000
    assert reads <= 20, "one for each append"


async def test_min_bytes_is_at_most_max_bytes(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    await client.produce("t", bytes(1000))
    began = time.monotonic()
    answer = await client.call(fetch_all("t", 1, min_bytes=1 << 20, max_bytes=500), FetchResponse, VERSION)
    assert time.monotonic() - began < 4, "it does not wait for what can never come"
    assert answer.responses[0].partitions[0].records


async def test_a_fetch_of_very_many_partitions_is_read_in_slices(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    await client.produce("t", b"a")
    answer = await client.call(fetch_all("t", 5_000, min_bytes=1), FetchResponse, VERSION)
    partitions = answer.responses[0].partitions
    assert len(partitions) == 5_000
    assert partitions[0].records
    assert {each.error_code for each in partitions[1:]} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
