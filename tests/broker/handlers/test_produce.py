from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.protocol.compression import ZSTD
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemark.protocol.records import Record, build_batch

VERSIONS = range(3, 14)  # the versions before are told of, but closed
START_OFFSET_FROM = 5
ZSTD_FROM = 7
RECORD_ERRORS_FROM = 8
LEADER_TOLD_FROM = 10
TOPIC_IDS_FROM = 13


def batch(*values: bytes, **fields: Any) -> bytes:
    return bytes(build_batch([Record(value=value) for value in values], **fields))


async def request(client: Any, topic: str, *parts: tuple[int, bytes | None], acks: int = -1) -> ProduceRequest:
    """For any version: topic by name and by id."""
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    topic_id = await client.topic_id(topic)
    topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=topics)


async def produce(client: Any, version: int, topic: str, *parts: tuple[int, bytes | None], acks: int = -1) -> list[Any]:
    answer = await client.ask(await request(client, topic, *parts, acks=acks), version)
    return list(answer.responses[0].partition_responses)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
async def test_a_batch_gets_the_next_offset(shared: Any, topic: str, version: int, acks: int) -> None:
    for expected in (0, 2):
        (told,) = await produce(shared, version, topic, (0, batch(b"a", b"b")), acks=acks)
        assert (told.index, told.error_code, told.base_offset, told.log_append_time_ms) == (0, 0, expected, -1)
        assert told.log_start_offset == (0 if version >= START_OFFSET_FROM else -1)
    assert (await shared.fetch(topic, 0)).high_watermark == 4


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_versions_of_older_record_formats_are_closed(shared: Any, version: int) -> None:
    shared.writer.write(b"\0\0\0\x0e" + b"\0\0" + version.to_bytes(2, "big") + b"\0\0\0\x01" + b"\0\x04test")
    assert await shared.closed_by_peer()


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_partition_is_answered_by_itself(shared: Any, topic: str, version: int) -> None:
    broken = bytearray(batch(b"x"))
    broken[-1] ^= 1
    parts = [(0, bytes(broken)), (1, batch(b"y")), (99, batch(b"z"))]
    told = {each.index: each for each in await produce(shared, version, topic, *parts)}
    codes = {index: each.error_code for index, each in told.items()}
    assert codes == {0: ErrorCode.CORRUPT_MESSAGE, 1: 0, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert [told[index].base_offset for index in (0, 1, 99)] == [-1, 0, -1]
    assert (told[0].error_message is not None) == (version >= RECORD_ERRORS_FROM)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_that_does_not_exist(shared: Any, version: int) -> None:
    data = [PartitionProduceData(index=0, records=batch(b"x"))]
    wanted = [TopicProduceData(name="missing", topic_id=b"?" * 16, partition_data=data)]
    answer = await shared.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=wanted), version)
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.responses[0].partition_responses[0].error_code == code


@pytest.mark.parametrize("version", VERSIONS)
async def test_zstd_is_understood_from_version_7_on(shared: Any, topic: str, version: int) -> None:
    (told,) = await produce(shared, version, topic, (0, batch(b"x" * 100, compression=ZSTD)))
    assert told.error_code == (0 if version >= ZSTD_FROM else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


@pytest.mark.parametrize("version", [3, 8, 13])
@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_odd_acks_are_refused(shared: Any, topic: str, version: int, acks: int) -> None:
    (told,) = await produce(shared, version, topic, (0, batch(b"x")), acks=acks)
    assert (told.error_code, told.base_offset) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)
    assert (await shared.fetch(topic, 0)).high_watermark == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_acks_0_is_not_answered_and_an_error_hangs_up(shared: Any, topic: str, version: int) -> None:
    shared.send(await request(shared, topic, (0, batch(b"x")), acks=0), version)
    assert (await shared.fetch(topic, 0)).high_watermark == 1  # the next answer is that of the next request
    shared.send(await request(shared, topic, (99, batch(b"x")), acks=0), version)
    assert await shared.closed_by_peer()


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_a_batch_that_is_sent_again_is_answered_with_its_first_offset(
    shared: Any, topic: str, version: int
) -> None:
    mine = {"producer_id": 4711, "producer_epoch": 0}
    first = batch(b"a", base_sequence=0, **mine)
    for _ in range(2):
        (told,) = await produce(shared, version, topic, (0, first))
        assert (told.error_code, told.base_offset) == (0, 0)
    (gap,) = await produce(shared, version, topic, (0, batch(b"b", base_sequence=5, **mine)))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await shared.fetch(topic, 0)).high_watermark == 1


async def test_writing_adds_its_partition_to_the_transaction_from_version_12_on(txn: Any, name: str) -> None:
    producer = await txn.start(name)
    assert await txn.produce(name, producer, b"x", version=10) == ErrorCode.INVALID_TXN_STATE
    assert await txn.produce(name, producer, b"x", version=11) == ErrorCode.TRANSACTION_ABORTABLE
    assert await txn.produce(name, producer, b"x", version=12) == ErrorCode.NONE
    assert [each.topic for each in (await txn.describe(name)).topics] == [txn.topic]


@pytest.mark.parametrize("version", [3, 13])
async def test_nothing_is_written_by_empty_lists_and_null_records_are_refused(
    shared: Any, topic: str, version: int
) -> None:
    assert (await shared.ask(ProduceRequest(acks=1, timeout_ms=1000), version)).responses == []
    (told,) = await produce(shared, version, topic, (0, None))
    assert told.error_code == ErrorCode.INVALID_RECORD
    assert (await shared.fetch(topic, 0)).high_watermark == 0


async def test_the_leader_is_named_where_another_leads(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2])
    for version in VERSIONS:
        answer = await cluster.client.ask(await request(cluster.client, "t", (0, batch(b"x"))), version)
        (told,) = answer.responses[0].partition_responses
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if version >= LEADER_TOLD_FROM:
            assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 0)
            assert [each.node_id for each in answer.node_endpoints] == [2]
        else:
            assert answer.node_endpoints == []


async def test_acks_of_all_waits_for_the_replicas_and_times_out(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1, 2])
    waiting = await request(cluster.client, "t", (0, batch(b"x")))
    waiting.timeout_ms = 1
    answer = await cluster.client.ask(waiting, 12)
    (told,) = answer.responses[0].partition_responses
    assert (told.error_code, told.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    waiting.timeout_ms = 10_000
    cluster.client.send(waiting, 12)
    await cluster.heartbeat(2, want_fence=True)  # and so nobody else is in sync
    answer = await asyncio.wait_for(cluster.client.receive(ProduceResponse, 12), 10)
    (told,) = answer.responses[0].partition_responses
    assert (told.error_code, told.base_offset) == (0, 1)
