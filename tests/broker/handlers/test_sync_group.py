from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

INSTANCE_IDS_FROM = 3
PROTOCOL_FROM = 5


async def joined(groups: Any) -> tuple[str, int]:
    answer = await groups.join(await groups.new_member_id())
    return answer.member_id, answer.generation_id


async def test_the_leaders_assignment_is_handed_out(groups: Any, version: int) -> None:
    member, generation = await joined(groups)
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"mine")]
    answer = await groups.sync(member, generation, version=version, assignments=given)
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"mine")
    told = (answer.protocol_type, answer.protocol_name)
    assert told == (("consumer", "range") if version >= PROTOCOL_FROM else (None, None))


async def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(groups: Any, version: int) -> None:
    member, generation = await joined(groups)
    given = [SyncGroupRequestAssignment(member_id="somebody", assignment=b"not mine")]
    answer = await groups.sync(member, generation, version=version, assignments=given)
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"")


async def test_in_a_stable_group_the_assignment_is_returned_again_and_not_replaced(groups: Any, version: int) -> None:
    member, generation = await groups.stable(assignment=b"first")
    given = [SyncGroupRequestAssignment(member_id=member, assignment=b"second")]
    answer = await groups.sync(member, generation, version=version, assignments=given)
    assert (answer.error_code, bytes(answer.assignment)) == (ErrorCode.NONE, b"first")


async def test_a_caller_that_is_no_member_of_this_generation_is_refused(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    wrong = {
        ErrorCode.ILLEGAL_GENERATION: (member, generation - 1, groups.group),
        ErrorCode.UNKNOWN_MEMBER_ID: ("stranger", generation, groups.group),
        ErrorCode.INVALID_GROUP_ID: (member, generation, ""),
    }
    for code, (member_id, epoch, group) in wrong.items():
        answer = await groups.sync(member_id, epoch, version=version, group_id=group)
        assert (answer.error_code, bytes(answer.assignment)) == (code, b"")
    unknown = await groups.sync(member, generation, version=version, group_id="no-group")
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID


async def test_the_protocol_must_be_the_groups_from_version_5_on(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    expected = ErrorCode.INCONSISTENT_GROUP_PROTOCOL if version >= PROTOCOL_FROM else ErrorCode.NONE
    for key, wrong in (
        ("protocol_name", "sticky"),
        ("protocol_name", None),
        ("protocol_type", "connect"),
        ("protocol_type", None),
    ):
        answer = await groups.sync(member, generation, version=version, **{key: wrong})
        assert answer.error_code == expected


@pytest.mark.parametrize("version", range(INSTANCE_IDS_FROM, 6))
async def test_a_static_member_is_fenced_by_its_successor(groups: Any, version: int) -> None:
    old, generation = await groups.stable(group_instance_id="i")
    await groups.join(group_instance_id="i")
    answer = await groups.sync(old, generation, version=version, group_instance_id="i")
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID


async def test_a_rebalance_makes_the_members_join_again(
    groups: Any, shared_broker: Any, connect: Any, version: int
) -> None:
    member, generation = await groups.stable()
    other = await connect(shared_broker)
    other.send(groups.join_request(await groups.new_member_id()), 9)
    await other.writer.drain()
    while (answer := await groups.sync(member, generation, version=version)).error_code == ErrorCode.NONE:
        pass
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    request = SyncGroupRequest(
        group_id="g", member_id="m", generation_id=1, protocol_type="consumer", protocol_name="range"
    )
    assert (await idle.ask(request, version)).error_code == ErrorCode.NOT_COORDINATOR


async def test_while_groups_are_loaded_the_members_join_again(loading: Any, version: int) -> None:
    request = SyncGroupRequest(
        group_id="g", member_id="m", generation_id=1, protocol_type="consumer", protocol_name="range"
    )
    assert (await loading.ask(request, version)).error_code == ErrorCode.REBALANCE_IN_PROGRESS
