from __future__ import annotations

import asyncio
from typing import Any

import pytest
from group_members import Groups

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupRequestProtocol, JoinGroupResponse

MEMBER_ID_REQUIRED_FROM = 4
INSTANCE_IDS_FROM = 5
PROTOCOL_TYPE_FROM = 7
SKIP_ASSIGNMENT_FROM = 9


async def join_new(groups: Any, version: int, **fields: Any) -> Any:
    """A new member, in as many requests as its version takes."""
    answer = await groups.join(version=version, **fields)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await groups.join(answer.member_id, version=version, **fields)
    return answer


async def test_the_first_member_leads_and_gets_all_members(groups: Any, version: int) -> None:
    joined = await join_new(groups, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert joined.leader == joined.member_id
    assert [each.member_id for each in joined.members] == [joined.member_id]
    assert joined.protocol_type == ("consumer" if version >= PROTOCOL_TYPE_FROM else None)


async def test_a_new_member_first_gets_an_id_from_version_4_on(groups: Any, version: int) -> None:
    answer = await groups.join(version=version)
    if version >= MEMBER_ID_REQUIRED_FROM:
        assert (answer.error_code, answer.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert answer.members == []
    else:
        assert answer.error_code == ErrorCode.NONE
    assert answer.member_id.startswith("test-")


@pytest.mark.parametrize("version", range(INSTANCE_IDS_FROM, 10))
async def test_a_static_member_needs_no_id_and_takes_its_predecessors_place(groups: Any, version: int) -> None:
    first = await groups.join(version=version, group_instance_id="i")
    assert first.error_code == ErrorCode.NONE
    assert [each.group_instance_id for each in first.members] == ["i"]
    second = await groups.join(version=version, group_instance_id="i")
    assert second.error_code == ErrorCode.NONE
    assert second.member_id != first.member_id
    gone = await groups.join(first.member_id, version=version, group_instance_id="i")
    assert gone.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", [8, 9])
async def test_a_static_leader_that_returns_keeps_the_generation(groups: Any, version: int) -> None:
    _, generation = await groups.stable(group_instance_id="i")
    back = await groups.join(version=version, group_instance_id="i", reason="restarted")
    assert (back.error_code, back.generation_id) == (ErrorCode.NONE, generation)
    assert back.skip_assignment == (version >= SKIP_ASSIGNMENT_FROM)
    # Before there was a way to say so, the leader's former id told it not to assign again.
    assert (back.leader == back.member_id) == (version >= SKIP_ASSIGNMENT_FROM)


async def test_only_the_leader_gets_the_members(groups: Any, shared_broker: Any, connect: Any) -> None:
    member, generation = await groups.stable()
    other = await connect(shared_broker)
    other.send(groups.join_request(await groups.new_member_id()), 9)
    await other.writer.drain()
    leader = await groups.join(member)
    follower = await asyncio.wait_for(other.receive(JoinGroupResponse, 9), 10)
    assert leader.generation_id == follower.generation_id == generation + 1
    assert leader.leader == follower.leader == member
    assert {each.member_id for each in leader.members} == {member, follower.member_id}
    assert follower.members == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": -1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "stranger", "group_id": "no-group"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [JoinGroupRequestProtocol(name="other")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
@pytest.mark.parametrize("version", [0, 5, 9])
async def test_what_is_wrong_is_refused_and_the_group_goes_on(
    groups: Any, fields: dict[str, Any], code: ErrorCode, version: int
) -> None:
    member, generation = await groups.stable()
    refused = await groups.join(version=version, **fields)
    assert (refused.error_code, refused.generation_id) == (code, -1)
    assert refused.member_id == fields.get("member_id", "")
    synced = await groups.sync(member, generation)
    assert (synced.error_code, bytes(synced.assignment)) == (ErrorCode.NONE, b"all")


async def test_a_group_is_only_as_large_as_it_may_be(start_node: Any, connect: Any) -> None:
    node = await start_node(group_max_size=1, group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=1)
    groups = Groups(await connect(node), topic="t", group="g")
    await groups.prepare()
    await groups.stable()
    assert (await groups.join(await groups.new_member_id())).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    groups = Groups(idle, topic="t", group="g")
    assert (await groups.join(version=version)).error_code == ErrorCode.NOT_COORDINATOR


async def test_no_member_joins_while_groups_are_loaded(loading: Any, version: int) -> None:
    groups = Groups(loading, topic="t", group="g")
    assert (await groups.join(version=version)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
