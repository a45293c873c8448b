from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)


async def delete(client: Any, group: str, topic: str, *indexes: int) -> tuple[int, dict[int, int]]:
    """The code of the whole answer, and of each partition."""
    partitions = [OffsetDeleteRequestPartition(partition_index=each) for each in indexes]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    answer = await client.ask(OffsetDeleteRequest(group_id=group, topics=topics))
    told = {each.partition_index: each.error_code for one in answer.topics for each in one.partitions}
    return answer.error_code, told


async def test_an_offset_is_forgotten_and_the_others_are_not(groups: Any) -> None:
    assert [await groups.commit(7), await groups.commit(8, partition=1)] == [0, 0]
    assert await delete(groups.client, groups.group, groups.topic, 0) == (0, {0: 0})
    assert await groups.committed() == -1
    assert await groups.committed(partition=1) == 8


async def test_what_was_never_committed_can_be_deleted(groups: Any) -> None:
    await groups.commit(7)
    assert await delete(groups.client, groups.group, groups.topic, 1, 2) == (0, {1: 0, 2: 0})
    assert await groups.committed() == 7


async def test_a_topic_that_does_not_exist(groups: Any) -> None:
    await groups.commit(7)
    code, told = await delete(groups.client, groups.group, "no-such-topic", 0)
    assert (code, told) == (0, {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


async def test_a_topic_that_members_subscribe_to_is_refused(groups: Any) -> None:
    member, generation = await groups.stable()
    assert await groups.commit(7, member_id=member, generation_id_or_member_epoch=generation) == 0
    code, told = await delete(groups.client, groups.group, groups.topic, 0)
    assert (code, told) == (0, {0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})
    assert await groups.committed() == 7


async def test_a_group_with_members_that_are_no_consumers_is_refused_whole(groups: Any) -> None:
    await groups.stable(protocol_type="connect")
    assert await delete(groups.client, groups.group, groups.topic, 0) == (ErrorCode.NON_EMPTY_GROUP, {})


async def test_groups_that_do_not_exist_or_have_no_name(groups: Any) -> None:
    assert await delete(groups.client, "no-such-group", groups.topic, 0) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert await delete(groups.client, "", groups.topic, 0) == (ErrorCode.INVALID_GROUP_ID, {})


async def test_nothing_is_deleted_by_an_empty_list(groups: Any) -> None:
    await groups.commit(7)
    assert (await groups.client.ask(OffsetDeleteRequest(group_id=groups.group))).topics == []
    assert await groups.committed() == 7


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any) -> None:
    assert await delete(idle, "g", "t", 0) == (ErrorCode.NOT_COORDINATOR, {})


async def test_nothing_is_deleted_while_groups_are_loaded(loading: Any) -> None:
    assert await delete(loading, "g", "t", 0) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, {})
