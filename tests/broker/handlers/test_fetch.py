from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from tidemark.protocol.records import iter_batches, iter_records

START_OFFSET_FROM = 5
SESSIONS_FROM = 7
LEADER_EPOCHS_FROM = 9
FOLLOWERS_FROM = 11
DIVERGENCE_FROM = 12
TOPIC_IDS_FROM = 13
ENDPOINTS_FROM = 16


async def request(client: Any, topic: str, *partitions: FetchPartition, **fields: Any) -> FetchRequest:
    """For any version: topic by name and by id."""
    topics = [FetchTopic(topic=topic, topic_id=await client.topic_id(topic), partitions=list(partitions))]
    return FetchRequest(topics=topics, **{"min_bytes": 1} | fields)


def at(offset: int, index: int = 0, limit_bytes: int = 1 << 20, **fields: Any) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=limit_bytes, **fields)


async def fetch(client: Any, version: int, topic: str, *partitions: FetchPartition, **fields: Any) -> list[Any]:
    answer = await client.ask(await request(client, topic, *partitions, **fields), version)
    assert answer.error_code == ErrorCode.NONE
    return [each for one in answer.responses for each in one.partitions]


def values(partition: Any) -> list[bytes | None]:
    return [
        record.value
        for header, batch in iter_batches(bytes(partition.records or b""))
        if not header.is_control
        for record in iter_records(batch)
    ]


async def test_records_are_read_with_the_marks_of_their_partition(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"a")
    await shared.produce(topic, b"b")
    (told,) = await fetch(shared, version, topic, at(1))
    assert (told.partition_index, told.error_code, values(told)) == (0, 0, [b"b"])
    assert (told.high_watermark, told.last_stable_offset) == (2, 2)
    assert told.log_start_offset == (0 if version >= START_OFFSET_FROM else -1)
    (at_the_end,) = await fetch(shared, version, topic, at(2))
    assert (at_the_end.error_code, values(at_the_end)) == (0, [])


async def test_the_first_batch_comes_whatever_the_limits_are(shared: Any, topic: str, version: int) -> None:
    for index in (0, 1):
        for _ in range(2):
            await shared.produce(topic, b"x" * 100, partition=index)
    told = await fetch(shared, version, topic, at(0, 0, limit_bytes=1), at(0, 1, limit_bytes=1), max_bytes=1)
    assert [len(values(each)) for each in told] == [1, 0]


async def test_each_partition_is_answered_by_itself(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"a")
    told = {each.partition_index: each for each in await fetch(shared, version, topic, at(0), at(5, 1), at(0, 99))}
    assert (told[0].error_code, values(told[0])) == (0, [b"a"])
    assert (told[1].error_code, told[1].high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert told[99].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_does_not_exist(shared: Any, version: int) -> None:
    topics = [FetchTopic(topic="missing", topic_id=b"?" * 16, partitions=[at(0)])]
    answer = await shared.ask(FetchRequest(topics=topics, min_bytes=1), version)
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.responses[0].partitions[0].error_code == code


@pytest.mark.parametrize("version", range(LEADER_EPOCHS_FROM, 19))
async def test_the_leader_epoch_of_the_reader_is_checked(shared: Any, topic: str, version: int) -> None:
    (told,) = await fetch(shared, version, topic, at(0, current_leader_epoch=0))
    assert told.error_code == ErrorCode.NONE
    (told,) = await fetch(shared, version, topic, at(0, current_leader_epoch=3))
    assert told.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("version", range(DIVERGENCE_FROM, 19))
async def test_a_reader_whose_records_were_replaced_learns_where(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"a")
    (told,) = await fetch(shared, version, topic, at(9, last_fetched_epoch=0))
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset) == (0, 1)
    assert values(told) == []


async def test_what_a_transaction_has_not_committed_is_kept_from_a_committed_reader(
    txn: Any, name: str, version: int
) -> None:
    producer = await txn.start(name)
    await txn.add(name, producer, 0)
    assert await txn.produce(name, producer, b"x") == ErrorCode.NONE
    (open_one,) = await fetch(txn.client, version, txn.topic, at(0), isolation_level=1)
    assert (values(open_one), open_one.last_stable_offset, open_one.high_watermark) == ([], 0, 1)
    (everything,) = await fetch(txn.client, version, txn.topic, at(0))
    assert (values(everything), everything.aborted_transactions) == ([b"x"], None)
    await txn.abort(name, producer)
    await txn.settled(name, "CompleteAbort")
    (aborted,) = await fetch(txn.client, version, txn.topic, at(0), isolation_level=1)
    told = [(each.producer_id, each.first_offset) for each in aborted.aborted_transactions]
    assert (told, aborted.last_stable_offset) == ([(producer[0], 0)], 2)


async def test_an_answer_waits_until_there_is_enough_to_read(
    shared: Any, topic: str, shared_broker: Any, connect: Any, version: int
) -> None:
    other = await connect(shared_broker)
    waiting = await request(shared, topic, at(0), max_wait_ms=10_000)
    shared.send(waiting, version)
    await shared.writer.drain()
    await other.produce(topic, b"late")
    answer = await asyncio.wait_for(shared.receive(FetchResponse, version), 10)
    assert values(answer.responses[0].partitions[0]) == [b"late"]


@pytest.mark.parametrize("version", range(SESSIONS_FROM, 19))
async def test_in_a_session_only_what_changed_is_returned(shared: Any, topic: str, version: int) -> None:
    first = await shared.ask(await request(shared, topic, at(0), at(0, 1), session_epoch=0), version)
    assert first.session_id > 0
    assert len(first.responses[0].partitions) == 2
    await shared.produce(topic, b"a", partition=1)
    following = FetchRequest(min_bytes=1, session_id=first.session_id, session_epoch=1)
    answer = await shared.ask(following, version)
    assert [each.partition_index for one in answer.responses for each in one.partitions] == [1]
    wrong = await shared.ask(FetchRequest(session_id=first.session_id, session_epoch=9), version)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = await shared.ask(FetchRequest(session_id=first.session_id ^ 1, session_epoch=1), version)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_the_leader_is_named_where_another_leads_and_a_follower_may_be_read(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("elsewhere", [2])
    await cluster.create("followed", [2, 1])
    for version in range(4, 19):
        answer = await cluster.client.ask(await request(cluster.client, "elsewhere", at(0)), version)
        (told,) = answer.responses[0].partitions
        assert told.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = 2 if version >= DIVERGENCE_FROM else -1
        assert told.current_leader.leader_id == leader
        assert [each.node_id for each in answer.node_endpoints] == ([2] if version >= ENDPOINTS_FROM else [])
        (told,) = await fetch(cluster.client, version, "followed", at(0))
        assert told.error_code == (0 if version >= FOLLOWERS_FROM else ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def test_a_replica_must_be_another_broker_with_its_epoch(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1, 2])
    for replica, epoch, code in (
        (2, cluster.epochs[2] - 1, ErrorCode.STALE_BROKER_EPOCH),
        (4711, 1, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (1, cluster.epochs[1], ErrorCode.BROKER_ID_NOT_REGISTERED),
        (2, cluster.epochs[2], ErrorCode.NONE),
    ):
        state = ReplicaState(replica_id=replica, replica_epoch=epoch)
        for version in (15, 18):
            answer = await cluster.client.ask(FetchRequest(replica_state=state, session_epoch=0), version)
            assert answer.error_code == code
