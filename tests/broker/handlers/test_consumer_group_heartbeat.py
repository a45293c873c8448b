from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions

LEAVING, LEAVING_FOR_A_WHILE = -1, -2


def assigned(answer: Any) -> list[int]:
    return sorted(index for topic in answer.assignment.topic_partitions for index in topic.partitions)


async def test_a_member_joins_gets_its_partitions_and_stays(groups: Any, version: int) -> None:
    joined = await groups.consumer("m", version=version)
    assert (joined.error_code, joined.member_id) == (0, "m")
    assert joined.member_epoch > 0
    assert assigned(joined) == [0, 1, 2]
    assert {topic.topic_id for topic in joined.assignment.topic_partitions} == {
        await groups.client.topic_id(groups.topic)
    }
    assert joined.heartbeat_interval_ms > 0
    stays = await groups.consumer("m", joined.member_epoch, version=version)
    assert (stays.error_code, stays.member_epoch, stays.assignment) == (0, joined.member_epoch, None)


async def test_a_member_id_is_made_here_in_version_0_and_by_the_client_from_1_on(groups: Any, version: int) -> None:
    joined = await groups.consumer("", version=version)
    if version == 0:
        assert joined.error_code == ErrorCode.NONE
        assert joined.member_id
    else:
        assert joined.error_code == ErrorCode.INVALID_REQUEST


async def test_a_second_member_gets_what_the_first_gives_back(groups: Any, version: int) -> None:
    topic_id = await groups.client.topic_id(groups.topic)
    epoch = (await groups.consumer("a", version=version)).member_epoch
    second = await groups.consumer("b", version=version)
    assert assigned(second) == []
    told = await groups.consumer("a", epoch, version=version)
    keeps = assigned(told)
    assert len(keeps) < 3
    owned = [TopicPartitions(topic_id=topic_id, partitions=keeps)]
    given_back = await groups.consumer("a", epoch, version=version, topic_partitions=owned)
    assert given_back.member_epoch == epoch + 1
    gets = await groups.consumer("b", second.member_epoch, version=version)
    assert sorted(keeps + assigned(gets)) == [0, 1, 2]


async def test_a_regular_expression_is_a_subscription(groups: Any) -> None:
    by_pattern = {"subscribed_topic_names": None, "subscribed_topic_regex": f"{groups.topic[:-1]}."}
    answer = await groups.consumer("m", **by_pattern)
    assert answer.error_code == ErrorCode.NONE
    while answer.assignment is None or assigned(answer) != [0, 1, 2]:  # patterns may be resolved a moment later
        answer = await groups.consumer("m", answer.member_epoch)
        assert answer.error_code == ErrorCode.NONE
    broken = await groups.consumer("n", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert broken.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_a_member_leaves_and_is_unknown_from_then_on(groups: Any, version: int) -> None:
    await groups.consumer("m", version=version)
    left = await groups.consumer("m", LEAVING, version=version)
    assert (left.error_code, left.member_epoch) == (0, LEAVING)
    again = await groups.consumer("m", 1, version=version)
    assert again.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_static_member_comes_back_to_its_partitions(groups: Any, version: int) -> None:
    first = await groups.consumer("m", version=version, instance_id="i")
    in_use = await groups.consumer("n", version=version, instance_id="i")
    assert in_use.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    left = await groups.consumer("m", LEAVING_FOR_A_WHILE, version=version, instance_id="i")
    assert (left.error_code, left.member_epoch) == (0, LEAVING_FOR_A_WHILE)
    back = await groups.consumer("n", version=version, instance_id="i")
    assert (back.error_code, assigned(back)) == (0, assigned(first))
    fenced = await groups.consumer("m", 1, version=version, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize(
    ("epoch", "fields", "code"),
    [
        (0, {"group_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        (0, {"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        (0, {"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        (0, {"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        (0, {"server_assignor": "no-such-assignor"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        (-3, {}, ErrorCode.INVALID_REQUEST),
        (LEAVING_FOR_A_WHILE, {}, ErrorCode.INVALID_REQUEST),
        (1, {"group_id": "no-such-group"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (LEAVING, {"group_id": "no-such-group"}, ErrorCode.GROUP_ID_NOT_FOUND),
        (1, {"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (LEAVING, {"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        (99, {"member_id": "first"}, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
)
async def test_what_is_wrong_is_refused_and_the_group_goes_on(
    groups: Any, version: int, epoch: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    first = await groups.consumer("first", version=version)
    refused = await groups.consumer(epoch=epoch, version=version, **fields)
    assert (refused.error_code, refused.assignment) == (code, None)
    well = await groups.consumer("first", first.member_epoch, version=version)
    assert (well.error_code, well.member_epoch) == (0, first.member_epoch)


async def test_a_group_that_committed_only_becomes_a_consumer_group_and_keeps_its_offsets(groups: Any) -> None:
    await groups.commit(7)
    assert (await groups.consumer("m")).error_code == ErrorCode.NONE
    assert await groups.committed() == 7


REQUEST = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1)


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert (await idle.ask(REQUEST, version)).error_code == ErrorCode.NOT_COORDINATOR


async def test_members_wait_while_groups_are_loaded(loading: Any, version: int) -> None:
    assert (await loading.ask(REQUEST, version)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
