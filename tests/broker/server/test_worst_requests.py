"""The worst requests that a client can make of each API, and for how long they keep the event loop.

What is measured is the processor time of the loop's thread in one callback: what another client waits for, whatever
else the machine does. The goal is 50 ms (docs/limits.md has figures).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import KEPT_SECONDS_MAX, LoopWatch, answered, frame_of
from tests.broker.server.worst_requests import TOPIC, largest_requests
from tidemark.broker.core.api_table import served_on
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidemark.protocol.messages.delete_records import DeleteRecordsRequest
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tidemark.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemark.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidemark.protocol.schema import api

PARTITIONS: Final = 1000
SHOWN: Final = 40
ELEMENTS: Final = int(os.environ.get("TIDEMARK_WORST_ELEMENTS", "3000"))


def topics(count: int, *, partitions: int) -> list[CreatableTopic]:
    return [
        CreatableTopic(name=f"many.{index}", num_partitions=partitions, replication_factor=1) for index in range(count)
    ]


# Beyond the largest ones: request, version, how many at once.
SPECIAL: dict[str, tuple[Any, int, int]] = {
    "Metadata, one topic 300 times": (MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)] * 300), 12, 1),
    "Metadata of all topics, 20 at once": (MetadataRequest(topics=None), 12, 20),
    "CreateTopics, validate only, 5 of 100,000 partitions": (
        CreateTopicsRequest(topics=topics(5, partitions=100_000), validate_only=True),
        7,
        1,
    ),
    "CreateTopics, validate only, 3,000 topics": (
        CreateTopicsRequest(topics=topics(3000, partitions=1), validate_only=True),
        7,
        1,
    ),
    "CreateTopics, 2,000 partitions": (CreateTopicsRequest(topics=topics(1, partitions=2000)), 7, 1),
    "DeleteRecords, 40 empty ones": (DeleteRecordsRequest(timeout_ms=1000), 2, 40),
    "OffsetFetch, one group 100 times": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * 100),
        8,
        1,
    ),
    "ListOffsets by time, 100 at once": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=1) for index in range(100)],
                )
            ],
        ),
        7,
        100,
    ),
    "DescribeTopicPartitions of everything": (
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)] * 100, response_partition_limit=2000),
        0,
        1,
    ),
    "DescribeConfigs, one topic 100 times": (
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name=TOPIC)] * 100),
        4,
        1,
    ),
}


def cases() -> Iterator[tuple[str, Any, int, int]]:
    for name, (request, version, count) in SPECIAL.items():
        yield name, request, version, count
    for name, request, version in largest_requests(count=ELEMENTS):
        yield name, request, version, 1


def drive(address: tuple[str, int], watch: LoopWatch) -> dict[str, tuple[float, str]]:
    """In another thread than the loop's: how long each case kept the loop."""
    kept: dict[str, tuple[float, str]] = {}
    for name, request, version, count in cases():
        frame = frame_of(request, version)
        del request
        watch.take()
        answered(address, frame, count)
        kept[name] = watch.take()
    return kept


async def test_no_request_keeps_the_loop_from_others(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = await start_node(group_initial_rebalance_delay_ms="0")
    client = await connect(node)
    await client.create(TOPIC, PARTITIONS)
    await node.warm_up()
    kept = await asyncio.to_thread(drive, node.address, LoopWatch(monkeypatch))
    with capsys.disabled():
        for name, (seconds, what) in sorted(kept.items(), key=lambda item: -item[1][0])[:SHOWN]:
            print(f"{seconds * 1000:8.1f} ms  {name}: {what}")
    too_long = {name: seconds for name, (seconds, _) in kept.items() if seconds > KEPT_SECONDS_MAX}
    assert not too_long


def test_every_api_that_clients_are_served_is_in_the_catalogue() -> None:
    assert {api(type(request)).key for _, request, _ in largest_requests(count=1)} == set(served_on("broker"))
