from __future__ import annotations

from typing import Any

import pytest
from group_members import Groups

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

LOADING_FROM = 2
MEMBERS_FROM = 3
ABORTABLE_FROM = 4
ADDS_OFFSETS_FROM = 5


async def begin(txn: Any, name: str) -> tuple[int, int]:
    producer: tuple[int, int] = await txn.start(name)
    assert await txn.add_offsets(name, producer) == ErrorCode.NONE
    return producer


@pytest.mark.parametrize(("commit", "seen"), [(True, 7), (False, -1)])
async def test_offsets_are_seen_when_their_transaction_is_committed(
    txn: Any, name: str, version: int, commit: bool, seen: int
) -> None:
    producer = await begin(txn, name)
    assert await txn.commit_offset(name, producer, 7, version=version) == ErrorCode.NONE
    assert (await txn.committed())[0] == -1
    await txn.end(name, producer, commit=commit, version=4)
    await txn.settled(name, "CompleteCommit" if commit else "CompleteAbort")
    assert (await txn.committed(stable=True)) == (seen, ErrorCode.NONE)


async def test_offsets_must_have_been_added_until_version_5_adds_them(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    code = await txn.commit_offset(name, producer, 7, version=version)
    if version >= ADDS_OFFSETS_FROM:
        assert code == ErrorCode.NONE
        assert [each.topic for each in (await txn.describe(name)).topics] == ["__consumer_offsets"]
    else:
        known = ErrorCode.TRANSACTION_ABORTABLE if version >= ABORTABLE_FROM else ErrorCode.INVALID_TXN_STATE
        assert code == known


async def test_whoever_is_not_the_producer_commits_nothing(txn: Any, name: str, version: int) -> None:
    producer_id, epoch = await begin(txn, name)
    fenced = await txn.commit_offset(name, (producer_id, epoch + 1), 7, version=version)
    assert fenced == ErrorCode.INVALID_PRODUCER_EPOCH
    unknown = await txn.commit_offset(name, (producer_id + 1, epoch), 7, version=version)
    assert unknown == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await txn.committed(stable=True) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(MEMBERS_FROM, 6))
async def test_a_former_member_is_fenced(txn: Any, name: str, version: int) -> None:
    member, generation = await Groups(txn.client, topic=txn.topic, group=txn.group).stable()
    producer = await begin(txn, name)
    for who, code in (
        ({"member": member, "generation": generation - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member": "stranger", "generation": generation}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": member, "generation": generation, "instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member": member, "generation": generation}, ErrorCode.NONE),
    ):
        assert await txn.commit_offset(name, producer, 7, version=version, **who) == code


async def test_each_partition_is_refused_or_committed_by_itself(txn: Any, name: str, version: int) -> None:
    producer_id, epoch = await begin(txn, name)
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="m" * 4097),
        TxnOffsetCommitRequestPartition(partition_index=1, committed_offset=8, committed_leader_epoch=0),
        TxnOffsetCommitRequestPartition(partition_index=99, committed_offset=9),
    ]
    request = TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=txn.group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name=txn.topic, partitions=partitions)],
    )
    answer = await txn.client.ask(request, version)
    told = {each.partition_index: each.error_code for each in answer.topics[0].partitions}
    assert told == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: 0, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    missing = await txn.commit_offset(name, (producer_id, epoch), 7, topic="missing", version=version)
    assert missing == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_group_must_have_a_name(txn: Any, name: str, version: int) -> None:
    producer = await txn.start(name)
    assert await txn.commit_offset(name, producer, 7, group="", version=version) == ErrorCode.INVALID_GROUP_ID


async def answered(client: Any, version: int) -> int:
    partitions = [TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    topics = [TxnOffsetCommitRequestTopic(name="t", partitions=partitions)]
    request = TxnOffsetCommitRequest(transactional_id="x", group_id="g", producer_id=1, topics=topics)
    return int((await client.ask(request, version)).topics[0].partitions[0].error_code)


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert await answered(idle, version) == ErrorCode.NOT_COORDINATOR


async def test_loading_is_an_error_code_that_the_version_knows(loading: Any, version: int) -> None:
    known = version >= LOADING_FROM
    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if known else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await answered(loading, version) == code
