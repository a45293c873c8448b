from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState

TO_THE_HIGH_WATERMARK = -1


def request(topic: str, *wanted: tuple[int, int], timeout_ms: int = 10_000) -> DeleteRecordsRequest:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in wanted]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=timeout_ms)


def told(answer: DeleteRecordsResponse) -> list[tuple[int, int, int]]:
    """Of each partition: index, code, low watermark."""
    partitions = [each for topic in answer.topics for each in topic.partitions]
    return sorted((each.partition_index, each.error_code, each.low_watermark) for each in partitions)


async def test_records_below_an_offset_cannot_be_read_any_more(shared: Any, topic: str, version: int) -> None:
    for value in (b"a", b"b", b"c"):
        await shared.produce(topic, value)
    assert told(await shared.ask(request(topic, (0, 2)), version)) == [(0, 0, 2)]
    assert (await shared.fetch(topic, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await shared.fetch(topic, 2)).log_start_offset == 2
    assert told(await shared.ask(request(topic, (0, 1)), version)) == [(0, 0, 2)]  # it never moves back
    assert told(await shared.ask(request(topic, (0, TO_THE_HIGH_WATERMARK)), version)) == [(0, 0, 3)]


@pytest.mark.parametrize("offset", [2, -2])
async def test_an_offset_outside_the_log_is_refused(shared: Any, topic: str, version: int, offset: int) -> None:
    await shared.produce(topic, b"a")
    assert told(await shared.ask(request(topic, (0, offset)), version)) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert (await shared.fetch(topic, 0)).log_start_offset == 0


async def test_each_partition_is_answered_by_itself(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"a")
    answer = await shared.ask(request(topic, (0, 1), (99, 0), (1, 0)), version)
    assert told(answer) == [(0, 0, 1), (1, 0, 0), (99, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    missing = await shared.ask(request("missing", (0, 0)), version)
    assert told(missing) == [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]
    assert (await shared.ask(DeleteRecordsRequest(), version)).topics == []


async def test_records_of_a_topic_that_is_only_compacted_stay(client: Any) -> None:
    await client.create("compacted", cleanup_policy="compact")
    await client.create("both", cleanup_policy="compact,delete")
    for version in range(3):
        assert told(await client.ask(request("compacted", (0, 0)), version)) == [(0, ErrorCode.POLICY_VIOLATION, -1)]
        assert told(await client.ask(request("both", (0, 0)), version)) == [(0, 0, 0)]


async def test_a_partition_that_another_leads(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2])
    for version in range(3):
        answer = await cluster.client.ask(request("t", (0, 0)), version)
        assert told(answer) == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


async def follow(cluster: Any, *, offset: int, log_start_offset: int) -> None:
    """A fetch of broker 2, which follows `t`."""
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=offset,
        log_start_offset=log_start_offset,
        partition_max_bytes=1 << 20,
    )
    topic = FetchTopic(topic_id=cluster.image.topics["t"].topic_id, partitions=[asked])
    state = ReplicaState(replica_id=2, replica_epoch=cluster.epochs[2])
    answer = await cluster.client.ask(FetchRequest(replica_state=state, session_epoch=0, topics=[topic]), 17)
    assert answer.error_code == 0


async def test_the_answer_waits_for_the_replicas_that_live(cluster: Any, connect: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1, 2])
    await cluster.client.produce("t", b"a", acks=1)
    await follow(cluster, offset=1, log_start_offset=0)
    late = await cluster.client.ask(request("t", (0, 1), timeout_ms=1))
    assert told(late) == [(0, ErrorCode.REQUEST_TIMED_OUT, 0)]
    other = await connect(cluster.node)
    deleting = asyncio.create_task(other.ask(request("t", (0, 1))))
    await follow(cluster, offset=1, log_start_offset=0)
    assert not deleting.done()
    await follow(cluster, offset=1, log_start_offset=1)
    assert told(await deleting) == [(0, 0, 1)]
