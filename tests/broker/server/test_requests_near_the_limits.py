"""Requests of 100,000 elements, near what one may hold, and changes of 10,000 partitions: how long each keeps the loop.

`test_worst_requests.py` has the largest of every API with fewer elements; here are those that were found to be worst.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import LoopWatch, each_answered, too_long
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest
from tidemark.protocol.messages.end_txn import EndTxnRequest
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemark.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemark.protocol.records import Record, build_batch

MANY: Final = 100_000
WIDE: Final = 10_000
TOPIC: Final = "wide"
NOT_READY: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def fetched(topics: Iterator[tuple[str, int]]) -> list[FetchTopic]:
    return [
        FetchTopic(
            topic=name,
            partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(count)],
        )
        for name, count in topics
    ]


def unknown(count: int) -> Iterator[tuple[str, int]]:
    return ((f"unknown.{index}", 1) for index in range(count))


def committed(name: str, count: int) -> list[OffsetCommitRequestTopic]:
    partitions = [OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(count)]
    return [OffsetCommitRequestTopic(name=name, partitions=partitions)]


def produced(name: str, count: int) -> list[TopicProduceData]:
    partitions = [PartitionProduceData(index=index, records=b"") for index in range(count)]
    return [TopicProduceData(name=name, partition_data=partitions)]


def wide() -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=WIDE, replication_factor=1)])


def cases() -> Iterator[tuple[str, Any, int]]:
    yield "FindCoordinator, which makes the offsets topic", FindCoordinatorRequest(coordinator_keys=["g"]), 4
    yield "CreateTopics of 10,000 partitions", wide(), 7
    yield (
        "CreateTopics of 100,000 topics",
        CreateTopicsRequest(topics=[CreatableTopic(name=f"t.{index}", num_partitions=1) for index in range(MANY)]),
        7,
    )
    yield "Fetch of 100,000 unknown partitions", FetchRequest(topics=fetched(iter([("none", MANY)]))), 12
    yield "Fetch of 100,000 unknown topics", FetchRequest(topics=fetched(unknown(MANY))), 12
    yield "Fetch of 10,000 partitions", FetchRequest(topics=fetched(iter([(TOPIC, WIDE)])), max_wait_ms=100), 12
    yield (
        "Fetch of 100,000 unknown partitions with a session",
        FetchRequest(topics=fetched(iter([("none", MANY)])), session_epoch=0),
        12,
    )
    yield (
        "Fetch that forgets 100,000 partitions",
        FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="none", partitions=list(range(MANY)))]),
        12,
    )
    yield (
        "Metadata of 200,000 unknown topics",
        MetadataRequest(topics=[MetadataRequestTopic(name=f"t.{index}") for index in range(2 * MANY)]),
        12,
    )
    yield (
        "OffsetCommit of 100,000 partitions that are refused",
        OffsetCommitRequest(group_id="g", topics=committed("none", MANY)),
        8,
    )
    yield "OffsetCommit of 10,000 partitions", OffsetCommitRequest(group_id="g", topics=committed(TOPIC, WIDE)), 8
    yield (
        "OffsetFetch of 100,000 partitions",
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(MANY)))],
                )
            ]
        ),
        8,
    )
    yield (
        "OffsetFetch of everything",
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
        8,
    )
    yield (
        "OffsetDelete of 100,000 partitions",
        OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=TOPIC,
                    partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in range(MANY)],
                )
            ],
        ),
        0,
    )
    yield (
        "ListOffsets of 100,000 partitions",
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(MANY)],
                )
            ],
        ),
        7,
    )
    yield (
        "Produce to 100,000 unknown partitions",
        ProduceRequest(acks=-1, timeout_ms=1000, topic_data=produced("none", MANY)),
        9,
    )
    yield (
        "Produce of nothing to 10,000 partitions",
        ProduceRequest(acks=-1, timeout_ms=1000, topic_data=produced(TOPIC, WIDE)),
        9,
    )
    yield "DeleteTopics of 10,000 partitions", DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 5


async def test_requests_near_the_limits_do_not_keep_the_loop(
    start_node: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = await start_node(group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="1")
    await node.warm_up()
    kept = await asyncio.to_thread(each_answered, cases(), node.address, LoopWatch(monkeypatch))
    assert too_long(kept, capsys) == set()


def in_transaction(name: str, count: int, batch: bytes) -> ProduceRequest:
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(count)]
    topics = [TopicProduceData(name=name, partition_data=partitions)]
    return ProduceRequest(transactional_id="wide", acks=-1, timeout_ms=30_000, topic_data=topics)


def drive_transaction(address: tuple[str, int], watch: LoopWatch, producer_id: int) -> dict[str, tuple[float, str]]:
    batch = bytes(
        build_batch([Record(value=b"")], producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    )
    requests: dict[str, tuple[Any, int]] = {
        "to 100,000 unknown partitions": (in_transaction("none", MANY, b""), 12),
        "to 50,000 unknown partitions, with batches": (in_transaction("none", MANY // 2, batch), 12),
        "to 10,000 partitions": (in_transaction(TOPIC, WIDE, batch), 12),
        "its end": (
            EndTxnRequest(transactional_id="wide", producer_id=producer_id, producer_epoch=0, committed=True),
            5,
        ),
    }
    steps = [(f"a transaction: {name}", request, version) for name, (request, version) in requests.items()]
    return each_answered(steps, address, watch)


async def test_a_transaction_of_very_many_partitions_does_not_keep_the_loop(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = await start_node(transaction_state_log_num_partitions="1")
    client = await connect(node)
    await client.call(wide(), CreateTopicsResponse, 7)
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["wide"]), FindCoordinatorResponse, 4)
    init = InitProducerIdRequest(transactional_id="wide", transaction_timeout_ms=60_000)
    async with asyncio.timeout(30):  # the log of the coordinator's partition is opened behind those of the wide topic
        while (producer := await client.call(init, InitProducerIdResponse, 5)).error_code in NOT_READY:
            await asyncio.sleep(0.01)
    assert producer.error_code == 0
    await node.warm_up()
    watch = LoopWatch(monkeypatch)
    kept = await asyncio.to_thread(drive_transaction, node.address, watch, producer.producer_id)
    logs = [node._replicas.table.leader_of(TOPIC, index).log for index in (0, WIDE - 1)]
    assert [log.end_offset for log in logs] == [2, 2], "a record and the end of its transaction"
    assert too_long(kept, capsys) == set()
