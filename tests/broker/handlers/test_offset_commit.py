from __future__ import annotations

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
    OffsetFetchRequestTopics,
)

LEADER_EPOCHS_FROM = 6
INSTANCE_IDS_FROM = 7
CONSUMER_GROUPS_FROM = 9
TOPIC_IDS_FROM = 10


def at(offset: int, partition: int = 0, **fields: Any) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, **fields)


async def commit(groups: Any, *partitions: OffsetCommitRequestPartition, version: int = 9, **fields: Any) -> list[int]:
    """The codes of a commit for the group's topic, by name or, where the version wants that, by id."""
    topic_id = await groups.client.topic_id(groups.topic)
    topics = [OffsetCommitRequestTopic(name=groups.topic, topic_id=topic_id, partitions=list(partitions))]
    known = {"group_id": groups.group, "topics": topics}
    answer = await groups.client.ask(OffsetCommitRequest(**known | fields), version)
    (told,) = answer.topics
    assert (told.name, told.topic_id) == ((groups.topic, bytes(16)) if version < TOPIC_IDS_FROM else ("", topic_id))
    return [each.error_code for each in sorted(told.partitions, key=lambda each: each.partition_index)]


async def fetched(groups: Any, partition: int = 0) -> Any:
    topics = [OffsetFetchRequestTopics(name=groups.topic, partition_indexes=[partition])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=groups.group, topics=topics)])
    return (await groups.client.ask(request, 9)).groups[0].topics[0].partitions[0]


async def test_who_assigns_itself_may_commit(groups: Any, version: int) -> None:
    wanted = at(7, committed_metadata="m", committed_leader_epoch=0)
    assert await commit(groups, wanted, version=version) == [ErrorCode.NONE]
    found = await fetched(groups)
    assert (found.committed_offset, found.metadata) == (7, "m")
    assert found.committed_leader_epoch == (0 if version >= LEADER_EPOCHS_FROM else -1)


async def test_a_member_commits_with_its_generation(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    mine = {"member_id": member, "generation_id_or_member_epoch": generation}
    assert await commit(groups, at(7), version=version, **mine) == [ErrorCode.NONE]
    for wrong, code in (
        ({"generation_id_or_member_epoch": generation - 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation_id_or_member_epoch": generation + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "generation_id_or_member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert await commit(groups, at(8), version=version, **mine | wrong) == [code]
    assert (await fetched(groups)).committed_offset == 7


async def test_a_generation_of_a_group_that_does_not_exist(groups: Any, version: int) -> None:
    code = ErrorCode.ILLEGAL_GENERATION if version < CONSUMER_GROUPS_FROM else ErrorCode.GROUP_ID_NOT_FOUND
    strange = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert await commit(groups, at(7), version=version, **strange) == [code]
    assert (await fetched(groups)).committed_offset == -1


@pytest.mark.parametrize("version", range(INSTANCE_IDS_FROM, 11))
async def test_a_static_member_is_fenced_by_its_successor(groups: Any, version: int) -> None:
    old, generation = await groups.stable(group_instance_id="i")
    await groups.join(group_instance_id="i")
    who = {"member_id": old, "generation_id_or_member_epoch": generation, "group_instance_id": "i"}
    assert await commit(groups, at(7), version=version, **who) == [ErrorCode.FENCED_INSTANCE_ID]


@pytest.mark.parametrize("version", [8, CONSUMER_GROUPS_FROM, TOPIC_IDS_FROM])
async def test_a_member_of_a_consumer_group_commits_with_its_epoch(groups: Any, version: int) -> None:
    epoch = (await groups.consumer("m")).member_epoch
    who = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    knows = version >= CONSUMER_GROUPS_FROM
    assert await commit(groups, at(7), version=version, **who) == [0 if knows else ErrorCode.UNSUPPORTED_VERSION]
    stale = who | {"generation_id_or_member_epoch": epoch + 1}
    code = ErrorCode.STALE_MEMBER_EPOCH if knows else ErrorCode.UNSUPPORTED_VERSION
    assert await commit(groups, at(8), version=version, **stale) == [code]
    assert (await fetched(groups)).committed_offset == (7 if knows else -1)


async def test_each_partition_is_refused_or_committed_by_itself(groups: Any, version: int) -> None:
    too_long = "m" * 4097
    codes = await commit(groups, at(1, 0, committed_metadata=too_long), at(3, 99), at(2, 1), at(4, 2), version=version)
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [(await fetched(groups, index)).committed_offset for index in range(3)] == [-1, 2, 4]


async def test_of_a_partition_that_is_named_twice_the_last_commit_counts(groups: Any, version: int) -> None:
    assert await commit(groups, at(1), at(2), version=version) == [0, 0]
    assert (await fetched(groups)).committed_offset == 2


async def test_a_topic_that_does_not_exist(groups: Any, version: int) -> None:
    topic = OffsetCommitRequestTopic(name="no-such-topic", topic_id=b"?" * 16, partitions=[at(1)])
    answer = await groups.client.ask(OffsetCommitRequest(group_id=groups.group, topics=[topic]), version)
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.topics[0].partitions[0].error_code == code


async def test_nothing_is_committed_by_an_empty_list(groups: Any, version: int) -> None:
    assert (await groups.client.ask(OffsetCommitRequest(group_id=groups.group), version)).topics == []


@pytest.mark.parametrize("version", [2, 4])
async def test_the_retention_time_of_older_versions_is_taken(groups: Any, version: int) -> None:
    assert await commit(groups, at(7), version=version, retention_time_ms=3_600_000) == [0]
    assert (await fetched(groups)).committed_offset == 7


async def test_an_empty_group_id_may_be_used_as_of_old(groups: Any, version: int) -> None:
    groups.group = ""
    assert await commit(groups, at(version), version=version) == [0]
    assert (await fetched(groups)).committed_offset == version


async def elsewhere(client: Any, version: int) -> int:
    topic = OffsetCommitRequestTopic(name="t", topic_id=b"?" * 16, partitions=[at(1)])
    answer = await client.ask(OffsetCommitRequest(group_id="g", topics=[topic]), version)
    return int(answer.topics[0].partitions[0].error_code)


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert await elsewhere(idle, version) == ErrorCode.NOT_COORDINATOR


async def test_no_client_commits_while_groups_are_loaded(loading: Any, version: int) -> None:
    assert await elsewhere(loading, version) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
