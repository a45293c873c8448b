from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidemark.protocol.records import Record, build_batch

FIRST_MS = 1_700_000_000_000
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = range(-1, -7, -1)
NEEDS_VERSION = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
ISOLATION_FROM = 2
LEADER_EPOCHS_FROM = 4
OFFSET_NOT_AVAILABLE_FROM = 5
NONE_FOUND = (0, -1, -1)


async def filled(client: Any, topic: str) -> None:
    """Three records in partition 0, at FIRST_MS, 500 ms later, and in between."""
    for delta in (0, 500, 250):
        record = Record(value=b"x", timestamp=FIRST_MS + delta)
        assert (await client.produce(topic, batch=build_batch([record]))).error_code == 0


async def ask(client: Any, version: int, topic: str, *wanted: tuple[int, int], **fields: Any) -> list[Any]:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=each) for index, each in wanted]
    topics = [ListOffsetsTopic(name=topic, partitions=partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=topics, **fields)
    return list((await client.ask(request, version)).topics[0].partitions)


async def one(
    client: Any, version: int, topic: str, timestamp: int, *, index: int = 0, **fields: Any
) -> tuple[int, ...]:
    (found,) = await ask(client, version, topic, (index, timestamp), **fields)
    return found.error_code, found.timestamp, found.offset


async def test_the_ends_of_a_partition_and_the_first_record_at_a_time(shared: Any, topic: str, version: int) -> None:
    await filled(shared, topic)
    assert await one(shared, version, topic, LATEST) == (0, -1, 3)
    assert await one(shared, version, topic, EARLIEST) == (0, -1, 0)
    assert await one(shared, version, topic, 0) == (0, FIRST_MS, 0)
    assert await one(shared, version, topic, FIRST_MS + 1) == (0, FIRST_MS + 500, 1)
    assert await one(shared, version, topic, FIRST_MS + 501) == NONE_FOUND
    assert await one(shared, version, topic, LATEST, index=1) == (0, -1, 0)


async def test_leader_epochs_are_returned_from_version_4_on(shared: Any, topic: str, version: int) -> None:
    await filled(shared, topic)
    (found,) = await ask(shared, version, topic, (0, LATEST))
    assert found.leader_epoch == (0 if version >= LEADER_EPOCHS_FROM else -1)


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (MAX_TIMESTAMP, (0, FIRST_MS + 500, 1)),
        (EARLIEST_LOCAL, (0, -1, 0)),
        (LATEST_TIERED, NONE_FOUND),
        (EARLIEST_PENDING_UPLOAD, NONE_FOUND),
    ],
)
async def test_special_timestamps_have_a_meaning_from_their_version_on(
    shared: Any, topic: str, version: int, timestamp: int, expected: tuple[int, ...]
) -> None:
    await filled(shared, topic)
    known = version >= NEEDS_VERSION[timestamp]
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1, -1)
    assert await one(shared, version, topic, timestamp) == (expected if known else refused)


@pytest.mark.parametrize("version", range(ISOLATION_FROM, 12))
async def test_a_committed_reader_gets_the_last_stable_offset(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    await txn.add(name, producer, 0)
    assert await txn.produce(name, producer, b"x") == ErrorCode.NONE
    assert await one(txn.client, version, txn.topic, LATEST, isolation_level=1) == (0, -1, 0)
    assert await one(txn.client, version, txn.topic, LATEST, isolation_level=0) == (0, -1, 1)


async def test_what_does_not_exist_is_said(shared: Any, topic: str, version: int) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await one(shared, version, topic, LATEST, index=99) == unknown
    assert await one(shared, version, topic, LATEST, index=-1) == unknown
    assert await one(shared, version, "missing", LATEST) == unknown


async def test_a_partition_that_is_named_twice_is_refused_and_the_others_are_returned(
    shared: Any, topic: str, version: int
) -> None:
    told = await ask(shared, version, topic, (0, LATEST), (1, LATEST), (0, EARLIEST))
    codes = sorted((each.partition_index, each.error_code) for each in told)
    assert set(codes) == {(0, ErrorCode.INVALID_REQUEST), (1, 0)}


@pytest.mark.parametrize("version", range(LEADER_EPOCHS_FROM, 12))
@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.NONE), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, ErrorCode.NONE)]
)
async def test_the_leader_epoch_of_the_reader_is_checked(
    shared: Any, topic: str, version: int, epoch: int, code: ErrorCode
) -> None:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=epoch, timestamp=LATEST)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    assert (await shared.ask(request, version)).topics[0].partitions[0].error_code == code


async def test_nothing_is_asked_for_by_an_empty_list(shared: Any, version: int) -> None:
    assert (await shared.ask(ListOffsetsRequest(replica_id=-1), version)).topics == []


async def test_a_new_leader_does_not_tell_a_high_watermark_that_it_does_not_know(client: Any, node: Any) -> None:
    await client.create("t")
    await client.produce("t", b"x")
    partition = node._replicas.table.leader_of("t", 0)
    partition.leadership.start_offset = 99
    for version in (1, 4, 5, 11):
        known = version >= OFFSET_NOT_AVAILABLE_FROM
        code = ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE
        assert await one(client, version, "t", LATEST) == (code, -1, -1)
        assert await one(client, version, "t", EARLIEST) == (0, -1, 0)


async def test_a_partition_that_another_leads(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2])
    for version in (1, 6, 11):
        assert await one(cluster.client, version, "t", LATEST) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
