from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from tidemark.protocol.records import Record, build_batch


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
