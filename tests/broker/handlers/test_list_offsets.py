"""ListOffsets by time: the search reads indexes and batches, and nobody waits for it but who asked."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidemark.protocol.records import Record, build_batch
from tidemark.storage.segment import Segment

VERSION = 7
MAX_TIMESTAMP = -3


def by_time(topic: str, timestamp: int) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])


def only(answer: ListOffsetsResponse) -> ListOffsetsPartitionResponse:
    (partition,) = answer.topics[0].partitions
    return partition


async def produce_by_time(client: Any, *timestamps: int) -> None:
    for timestamp in timestamps:
        await client.produce("t", batch=build_batch([Record(timestamp=timestamp, value=b"v")]))


async def test_the_first_record_at_or_after_a_time_is_found(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    await client.create("t")
    await produce_by_time(client, 100, 300, 200)
    found = {
        timestamp: only(await client.call(by_time("t", timestamp), ListOffsetsResponse, VERSION)).offset
        for timestamp in (0, 100, 101, 300, 301, MAX_TIMESTAMP)
    }
    assert found == {0: 0, 100: 0, 101: 1, 300: 1, 301: -1, MAX_TIMESTAMP: 1}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_others_are_served_while_a_disk_is_searched(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    asked, goes_on = threading.Event(), threading.Event()
    real = Segment.position_for_timestamp

    def position_for_timestamp(segment: Segment, timestamp: int) -> int:
        asked.set()
        assert goes_on.wait(30)
        return real(segment, timestamp)

    monkeypatch.setattr(Segment, "position_for_timestamp", position_for_timestamp)
    node = await start_node()
    client, other = await connect(node), await connect(node)
    await client.create("t")
    await produce_by_time(client, 100, 300, 200)
    client.send(by_time("t", 101), VERSION)
    try:
        async with asyncio.timeout(10):
            while not asked.is_set():
                await asyncio.sleep(0.001)
        await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        if is_deleted:
            await other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), DeleteTopicsResponse, 1)
    finally:
        goes_on.set()
    answer = only(await asyncio.wait_for(client.receive(ListOffsetsResponse, VERSION), 10))
    if is_deleted:
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        assert (answer.error_code, answer.offset) == (0, 1)
