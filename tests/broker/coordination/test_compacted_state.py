"""What coordinators wrote is compacted: loading it takes work by what lives, not by what was ever written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.broker.coordination import shard_host
from tidemark.broker.coordination.loading import LogReplay
from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.metadata.internal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

SEGMENT_BYTES = 16_000
SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "log_cleaner_backoff_ms": 20,
    "log_cleaner_min_cleanable_ratio": 0.01,
}
PARTITIONS = 5
COMMITS = 600
IDS = 3
INITIALISATIONS = 400


def log_of(node: Any, topic: str) -> Any:
    return node._replicas.table.topics[topic].partitions[0].log


def bytes_of(node: Any, topic: str) -> int:
    return sum(segment.size for segment in log_of(node, topic).segments)


async def coordinated(client: Any, key_type: int, key: str, topic: str) -> None:
    """The coordinator is there, and its log has segments smaller than a user may ask for."""
    await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
    small = AlterableConfig(name="internal.segment.bytes", value=str(SEGMENT_BYTES))
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[small])
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == ErrorCode.NONE, answer.responses[0].error_message


async def answered(client: Any, request: Any, version: int) -> Any:
    """As soon as the coordinator has loaded."""
    async with asyncio.timeout(20):
        while True:
            answer = await client.ask(request, version)
            code = answer.groups[0].error_code if hasattr(answer, "groups") else answer.error_code
            if code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                assert code == ErrorCode.NONE
                return answer
            await asyncio.sleep(0.01)


async def until_small(node: Any, topic: str) -> None:
    """The active segment is never cleaned, and the one before only if it is on disk."""
    async with asyncio.timeout(30):
        while bytes_of(node, topic) > 3 * SEGMENT_BYTES:
            await asyncio.sleep(0.02)


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Of every log that is loaded from here on."""
    made: list[Any] = []

    class Noted(LogReplay):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)

    monkeypatch.setattr(shard_host, "LogReplay", Noted)
    return made


async def test_offsets_are_loaded_by_live_keys(start_node: Any, connect: Any, replays: list[Any]) -> None:
    node = await start_node(**SETTINGS)
    client = await connect(node)
    await client.create("t", partitions=PARTITIONS)
    await coordinated(client, 0, "g", OFFSETS_TOPIC)
    for offset in range(COMMITS):
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=offset) for index in range(PARTITIONS)
        ]
        topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
        answer = await client.ask(OffsetCommitRequest(group_id="g", topics=topics), 9)
        assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.NONE}
    assert log_of(node, OFFSETS_TOPIC).end_offset >= COMMITS * PARTITIONS
    await until_small(node, OFFSETS_TOPIC)
    await node.stop()

    client = await connect(await start_node(**SETTINGS))
    indexes = list(range(PARTITIONS))
    asked = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=indexes)]
    )
    answer = await answered(client, OffsetFetchRequest(groups=[asked]), 9)
    assert [each.committed_offset for each in answer.groups[0].topics[0].partitions] == [COMMITS - 1] * PARTITIONS
    assert 0 < sum(each.replayed for each in replays) < COMMITS * PARTITIONS / 4


async def test_transactional_ids_are_loaded_by_live_keys(start_node: Any, connect: Any, replays: list[Any]) -> None:
    node = await start_node(**SETTINGS)
    client = await connect(node)
    await coordinated(client, 1, "id0", TRANSACTIONS_TOPIC)
    requests = [InitProducerIdRequest(transactional_id=f"id{at}", transaction_timeout_ms=60_000) for at in range(IDS)]
    for _ in range(INITIALISATIONS):
        given = [await answered(client, request, 4) for request in requests]
    before = log_of(node, TRANSACTIONS_TOPIC).end_offset
    assert before >= INITIALISATIONS * IDS
    await until_small(node, TRANSACTIONS_TOPIC)
    await node.stop()

    client = await connect(await start_node(**SETTINGS))
    again = [await answered(client, request, 4) for request in requests]
    assert [each.producer_id for each in again] == [each.producer_id for each in given]
    assert [each.producer_epoch for each in again] == [each.producer_epoch + 1 for each in given]
    assert 0 < sum(each.replayed for each in replays) < before / 2
