from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidemark.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

ALL_FROM = 2
LEADER_EPOCHS_FROM = 5
STABLE_FROM = 7
MANY_FROM = 8
MEMBERS_FROM = 9
TOPIC_IDS_FROM = 10
ABSENT = (-1, -1, "", 0)


async def commit(groups: Any, *offsets: int) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=0, committed_metadata=f"m{offset}"
        )
        for index, offset in enumerate(offsets)
    ]
    topics = [OffsetCommitRequestTopic(name=groups.topic, partitions=partitions)]
    answer = await groups.client.ask(OffsetCommitRequest(group_id=groups.group, topics=topics), 9)
    assert [each.error_code for each in answer.topics[0].partitions] == [0] * len(offsets)


async def fetch(
    groups: Any,
    version: int,
    *indexes: int,
    everything: bool = False,
    topic_id: bytes | None = None,
    stable: bool = False,
    **member: Any,
) -> tuple[int, dict[int, tuple[int, int, str, int]]]:
    """The code of the group, and of each partition: offset, leader epoch, metadata and error."""
    if version < MANY_FROM:
        old = None if everything else [OffsetFetchRequestTopic(name=groups.topic, partition_indexes=list(indexes))]
        request = OffsetFetchRequest(group_id=groups.group, topics=old, require_stable=stable)
        answer = told = await groups.client.ask(request, version)
    else:
        known_id = await groups.client.topic_id(groups.topic)
        new = OffsetFetchRequestTopics(
            name=groups.topic, topic_id=topic_id or known_id, partition_indexes=list(indexes)
        )
        asked = OffsetFetchRequestGroup(group_id=groups.group, topics=None if everything else [new], **member)
        answer = await groups.client.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), version)
        (told,) = answer.groups
    assert len(told.topics) <= 1
    partitions = [each for topic in told.topics for each in topic.partitions]
    return told.error_code, {
        each.partition_index: (each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
        for each in partitions
    }


async def test_what_was_committed_is_returned_and_what_was_not_is_minus_1(groups: Any, version: int) -> None:
    await commit(groups, 7)
    code, found = await fetch(groups, version, 0, 1, 99)
    epoch = 0 if version >= LEADER_EPOCHS_FROM else -1
    assert (code, found) == (0, {0: (7, epoch, "m7", 0), 1: ABSENT, 99: ABSENT})


async def test_nothing_is_asked_for_by_an_empty_list(groups: Any, version: int) -> None:
    await commit(groups, 7)
    assert await fetch(groups, version) == (0, {})


@pytest.mark.parametrize("version", range(ALL_FROM, 11))
async def test_null_asks_for_everything(groups: Any, version: int) -> None:
    await commit(groups, 7, 8)
    code, found = await fetch(groups, version, everything=True)
    assert (code, {index: position[0] for index, position in found.items()}) == (0, {0: 7, 1: 8})


async def test_a_group_that_does_not_exist_has_committed_nothing(groups: Any, version: int) -> None:
    assert await fetch(groups, version, 0) == (0, {0: ABSENT})


async def test_an_empty_group_id_is_a_group_like_others(groups: Any, version: int) -> None:
    groups.group = ""
    assert await fetch(groups, version, 0) == (0, {0: ABSENT})


@pytest.mark.parametrize("version", range(MANY_FROM, 11))
async def test_many_groups_are_answered_each_by_itself(groups: Any, version: int) -> None:
    await commit(groups, 7)
    asked = [OffsetFetchRequestGroup(group_id=each, topics=None) for each in (groups.group, "no-such-group")]
    answer = await groups.client.ask(OffsetFetchRequest(groups=asked), version)
    told = {each.group_id: (each.error_code, len(each.topics)) for each in answer.groups}
    assert told == {groups.group: (0, 1), "no-such-group": (0, 0)}


@pytest.mark.parametrize("version", range(MEMBERS_FROM, 11))
async def test_a_member_of_a_consumer_group_names_its_epoch(groups: Any, version: int) -> None:
    await commit(groups, 7)
    epoch = (await groups.consumer("m")).member_epoch
    assert (await fetch(groups, version, 0, member_id="m", member_epoch=epoch))[0] == 0
    assert await fetch(groups, version, 0, member_id="m", member_epoch=epoch + 1) == (ErrorCode.STALE_MEMBER_EPOCH, {})
    unknown = await fetch(groups, version, 0, member_id="stranger", member_epoch=epoch)
    assert unknown == (ErrorCode.UNKNOWN_MEMBER_ID, {})
    assert (await fetch(groups, version, 0))[1][0][0] == 7  # an administrator's tool is no member


async def test_a_topic_id_that_does_not_exist(groups: Any) -> None:
    code, found = await fetch(groups, TOPIC_IDS_FROM, 0, topic_id=b"?" * 16)
    assert (code, found[0][3]) == (0, ErrorCode.UNKNOWN_TOPIC_ID)


@pytest.mark.parametrize("version", range(STABLE_FROM, 11))
async def test_an_offset_that_a_transaction_may_still_change_is_unstable(txn: Any, name: str, version: int) -> None:
    asked = SimpleNamespace(client=txn.client, group=txn.group, topic=txn.topic)
    await commit(asked, 7)
    producer = await txn.start(name)
    assert await txn.add_offsets(name, producer) == ErrorCode.NONE
    assert await txn.commit_offset(name, producer, 9) == ErrorCode.NONE
    _, found = await fetch(asked, version, 0, 1, stable=True)
    assert (found[0][0], found[0][3]) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert found[1] == ABSENT
    assert (await fetch(asked, version, 0))[1][0][0] == 7
    await txn.commit(name, producer)
    await txn.settled(name, "CompleteCommit")
    assert (await fetch(asked, version, 0, stable=True))[1][0][0] == 9


async def asked_elsewhere(client: Any, version: int) -> Any:
    return await fetch(SimpleNamespace(client=client, group="g", topic="t"), version, 0)


@pytest.mark.parametrize("version", range(1, TOPIC_IDS_FROM))
async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    code, found = await asked_elsewhere(idle, version)
    if version < ALL_FROM:  # no error of the whole answer yet
        assert found == {0: (-1, -1, "", ErrorCode.NOT_COORDINATOR)}
    else:
        assert (code, found) == (ErrorCode.NOT_COORDINATOR, {})


@pytest.mark.parametrize("version", [1, 2, 9])
async def test_nothing_is_returned_while_groups_are_loaded(loading: Any, version: int) -> None:
    code, found = await asked_elsewhere(loading, version)
    assert (code or found[0][3]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
