"""The worst batches, while another connection measures for how long they keep the event loop."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tidemark.protocol.compression import ZSTD
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemark.protocol.record import put_varint, repacked
from tidemark.protocol.records import Record, build_batch, read_header

NOW_MS = time.time_ns() // 1_000_000
RECORDS = 200_000
DELAY_SECONDS_MAX = 0.1  # twice the goal: machines differ


def produce(topic: str, *, ahead_ms: int = 0) -> ProduceRequest:
    """Many records in as few bytes as a good codec needs."""
    numbered = bytearray()
    for index in range(RECORDS):
        body = bytearray(2)
        put_varint(body, index)
        body += b"\2k\1\0"
        put_varint(numbered, len(body))
        numbered += body
    header = read_header(build_batch([Record(timestamp=NOW_MS, key=b"k")]))
    header = header._replace(
        record_count=RECORDS, last_offset_delta=RECORDS - 1, max_timestamp=NOW_MS + ahead_ms, attributes=0
    )
    batch = repacked(header, memoryview(numbered), ZSTD)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


async def longest_wait(client: Any, done: asyncio.Event) -> float:
    """In seconds of this thread's processor time, in which client and broker run: other processes do not count.
    Neither does waiting for a disk: a sync on the loop is not seen here."""
    longest = 0.0
    while not done.is_set():
        start = time.thread_time()
        await client.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        longest = max(longest, time.thread_time() - start)
    return longest


PRODUCED: dict[str, tuple[dict[str, str], int]] = {  # settings of the topic, and how far ahead its time is
    "Produce of 200,000 records, compacted topic": ({"cleanup_policy": "compact"}, 0),
    "Produce of 200,000 records, strict topic": ({"tidemark_produce_validation": "strict"}, 0),
    "Produce of 200,000 records, another codec": ({"compression_type": "gzip"}, 0),
    "Produce of 200,000 records, a time in the future": ({}, 2 * 3_600_000),
}


@pytest.mark.parametrize("name", PRODUCED)
async def test_no_batch_keeps_another_client_waiting(start_node: Any, connect: Any, name: str) -> None:
    settings, ahead_ms = PRODUCED[name]
    node = await start_node()
    client, canary = await connect(node), await connect(node)
    await client.create("large", 1, **settings)
    request = produce("large", ahead_ms=ahead_ms)
    assert (await client.produce("large", batch=build_batch([Record(timestamp=NOW_MS, key=b"k")]))).error_code == 0
    await canary.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    done = asyncio.Event()
    measuring = asyncio.create_task(longest_wait(canary, done))
    client.send(request, 12)
    answer = await asyncio.wait_for(client.receive(ProduceResponse, 12), 60)
    done.set()
    delay = await measuring
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert delay < DELAY_SECONDS_MAX
