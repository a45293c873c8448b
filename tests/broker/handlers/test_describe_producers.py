from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.broker.server.loop_watch import LoopWatch
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage.producers import PRODUCERS_MAX


async def describe(client: Any, topic: str, index: int) -> Any:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    return (await client.call(request, DescribeProducersResponse, 0)).topics[0].partitions[0]


async def test_recent_producers_are_returned(client: Any) -> None:
    await client.create("t")
    batch = build_batch([Record(value=b"x")], producer_id=7, producer_epoch=2, base_sequence=0)
    assert (await client.produce("t", batch=batch)).error_code == ErrorCode.NONE
    (producer,) = (await describe(client, "t", 0)).active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (7, 2, 0)
    assert producer.current_txn_start_offset == -1


async def test_what_is_not_there_is_said(client: Any) -> None:
    await client.create("t")
    assert (await describe(client, "t", 5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await describe(client, "missing", 0)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_follower_answers_from_its_own_log(client: Any, node: Any) -> None:
    await client.create("t")
    batch = build_batch([Record(value=b"x")], producer_id=7, producer_epoch=2, base_sequence=0)
    await client.produce("t", batch=batch)
    hosted = node._replicas.table.topics["t"]
    hosted.followed[0] = hosted.partitions.pop(0)  # what a follower's table looks like
    (producer,) = (await describe(client, "t", 0)).active_producers
    assert producer.producer_id == 7
    hosted.partitions[0] = hosted.followed.pop(0)


async def test_very_many_producers_are_described_in_slices(
    client: Any, node: Any, frozen_heap: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.create("t")
    log = node._replicas.table.leader_of("t", 0).log
    header = read_header(build_batch([Record(value=b"x")], producer_id=7, producer_epoch=2, base_sequence=0))
    for number in range(PRODUCERS_MAX):
        log.producer_states.appended(header._replace(producer_id=number), first_offset=number, last_offset=number)
    await describe(client, "t", 1)  # what is loaded on first use
    watch = LoopWatch(monkeypatch)
    client.send(DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])]), 0)
    size = int.from_bytes(await client.reader.readexactly(4))
    taken = watch.take()
    await client.reader.readexactly(size)
    await asyncio.sleep(0)
    assert size > PRODUCERS_MAX * 30
    assert taken[0] < 0.012, taken  # 19 ms at one go
