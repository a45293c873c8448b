"""A coordinator's log that holds what nobody can read: the shard skips it, says so, and serves the rest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from tidemark.broker.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from tidemark.broker.groups.records import encode_key, encode_value
from tidemark.broker.metadata.internal import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tidemark.broker.transactions.records import TransactionLogKey, TransactionLogValue
from tidemark.protocol.checksum import crc32c
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tidemark.protocol.records import Record, build_batch, read_header

FEW = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1}

UNEVEN = ConsumerGroupCurrentMemberAssignmentValue(
    assigned_partitions=[TopicPartitions(topic_id=bytes(16), partitions=[1, 2, 3], assignment_epochs=[1])]
)
UNREADABLE = {
    "no key": Record(key=None, value=b"x"),
    "an empty key": Record(key=b"", value=b"x"),
    "an unknown type": Record(key=b"\x7f\xff", value=b"\0\0"),
    "a key that ends too soon": Record(key=b"\0\1\0\xff", value=b"\0\1"),
    "a value that ends too soon": Record(key=b"\0\1\0\1g\0\1t\0\0\0\0", value=b"\0\1\0"),
    "a text that is no text": Record(key=b"\0\2\0\1\xff", value=b"\0\1"),
    "a value that contradicts itself": Record(
        key=encode_key(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")),
        value=encode_value(UNEVEN, 0),
    ),
    "an unknown state": Record(
        key=encode_key(TransactionLogKey(transactional_id="bad")),
        value=encode_value(TransactionLogValue(transaction_status=99), 1),
    ),
}


def poison(node: Any, topic: str, records: Sequence[Record], *, lies: bool = False) -> None:
    partition = node._replicas.table.topics[topic].partitions[0]
    batch = bytearray(build_batch(records))
    header = read_header(memoryview(batch))
    if lies:  # the header promises more records than there are
        count = header.record_count + 5
        batch[23:27], batch[57:61] = (count - 1).to_bytes(4, "big"), count.to_bytes(4, "big")
        batch[17:21] = crc32c(memoryview(batch)[21:]).to_bytes(4, "big")
        header = read_header(memoryview(batch))
    partition.append_internal(batch, header, 1_000)


async def commit(client: Any, offset: int) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    answer = await client.call(OffsetCommitRequest(group_id="good", topics=topics), OffsetCommitResponse, 9)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(client: Any) -> tuple[ErrorCode, int]:
    asked = OffsetFetchRequestGroup(group_id="good", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    async with asyncio.timeout(20):
        while True:
            [found] = (await client.call(OffsetFetchRequest(groups=[asked]), OffsetFetchResponse, 9)).groups
            if found.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode(found.error_code), found.topics[0].partitions[0].committed_offset
            await asyncio.sleep(0.01)


async def initialised(client: Any) -> tuple[ErrorCode, int]:
    request = InitProducerIdRequest(transactional_id="good", transaction_timeout_ms=1000)
    async with asyncio.timeout(20):
        while True:
            answer = await client.call(request, InitProducerIdResponse, 4)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return ErrorCode(answer.error_code), answer.producer_epoch
            await asyncio.sleep(0.01)


async def prepared(client: Any) -> Any:
    await client.create("t", partitions=1)
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["good"])
        await client.call(request, FindCoordinatorResponse, 6)
    assert await commit(client, 7) == ErrorCode.NONE
    assert await initialised(client) == (ErrorCode.NONE, 0)
    return client


@pytest.mark.parametrize("record", UNREADABLE.values(), ids=UNREADABLE.keys())
async def test_a_shard_loads_past_a_record_that_it_cannot_read(
    start_node: Any, connect: Any, caplog: pytest.LogCaptureFixture, record: Record
) -> None:
    node = await start_node(**FEW)
    await prepared(await connect(node))
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        poison(node, topic, [record])
    client = await connect(node)
    assert await commit(client, 8) == ErrorCode.NONE
    await node.stop()
    with caplog.at_level(logging.WARNING):
        client = await connect(await start_node(**FEW))
        assert await asyncio.wait_for(committed(client), 10) == (ErrorCode.NONE, 8)
        assert await asyncio.wait_for(initialised(client), 10) == (ErrorCode.NONE, 1)
    skipped = [each.getMessage() for each in caplog.records if "skipped" in each.getMessage()]
    assert any(message.startswith(f"{OFFSETS_TOPIC}-0: the record at offset 1") for message in skipped)
    assert any(message.startswith(f"{TRANSACTIONS_TOPIC}-0: the record at offset 1") for message in skipped)


async def test_a_shard_loads_past_a_batch_that_holds_less_than_it_says(
    start_node: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node(**FEW)
    client = await prepared(await connect(node))
    for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):
        poison(node, topic, [UNREADABLE["an empty key"]], lies=True)
    assert await commit(client, 8) == ErrorCode.NONE
    await node.stop()
    with caplog.at_level(logging.WARNING):
        client = await connect(await start_node(**FEW))
        assert await asyncio.wait_for(committed(client), 10) == (ErrorCode.NONE, 8)
        assert await asyncio.wait_for(initialised(client), 10) == (ErrorCode.NONE, 1)
    assert f"{TRANSACTIONS_TOPIC}-0: 2 records could not be read" in caplog.text
