from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity

MANY_FROM = 3
NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID


async def leave(client: Any, version: int, *member_ids: str, group: str) -> Any:
    """As each version says it: one member, or a list of them."""
    members = [MemberIdentity(member_id=each) for each in member_ids]
    fields = {"members": members} if version >= MANY_FROM else {"member_id": member_ids[0]}
    return await client.ask(LeaveGroupRequest(group_id=group, **fields), version)


def code_of(answer: Any, version: int) -> int:
    """The member's own code: before version 3, the answer's."""
    if version < MANY_FROM:
        return int(answer.error_code)
    assert answer.error_code == NONE
    (member,) = answer.members
    return int(member.error_code)


async def test_a_member_goes_once(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    assert code_of(await leave(groups.client, version, member, group=groups.group), version) == NONE
    assert code_of(await leave(groups.client, version, member, group=groups.group), version) == UNKNOWN
    assert (await groups.sync(member, generation)).error_code == UNKNOWN


async def test_a_stranger_or_a_group_that_does_not_exist(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    assert code_of(await leave(groups.client, version, "stranger", group=groups.group), version) == UNKNOWN
    assert code_of(await leave(groups.client, version, member, group="no-group"), version) == UNKNOWN
    assert (await groups.sync(member, generation)).error_code == NONE


async def test_a_member_id_that_was_only_given_out_can_be_given_back(groups: Any, version: int) -> None:
    member = await groups.new_member_id()
    assert code_of(await leave(groups.client, version, member, group=groups.group), version) == NONE
    assert (await groups.join(member)).error_code == UNKNOWN


@pytest.mark.parametrize("version", range(MANY_FROM, 6))
async def test_each_of_many_members_gets_its_own_answer(groups: Any, version: int) -> None:
    member, _ = await groups.stable()
    answer = await leave(groups.client, version, "stranger", member, member, group=groups.group)
    assert answer.error_code == NONE
    told = [(each.member_id, each.error_code) for each in answer.members]
    assert told == [("stranger", UNKNOWN), (member, NONE), (member, UNKNOWN)]


@pytest.mark.parametrize("version", range(MANY_FROM, 6))
async def test_a_static_member_is_removed_by_its_instance_id(groups: Any, version: int) -> None:
    member, generation = await groups.stable(group_instance_id="i")
    wrong = MemberIdentity(member_id="another", group_instance_id="i")
    stranger = MemberIdentity(group_instance_id="j")
    right = MemberIdentity(group_instance_id="i", reason="scaled down")
    request = LeaveGroupRequest(group_id=groups.group, members=[wrong, stranger, right])
    answer = await groups.client.ask(request, version)
    assert [each.error_code for each in answer.members] == [ErrorCode.FENCED_INSTANCE_ID, UNKNOWN, NONE]
    assert [each.group_instance_id for each in answer.members] == ["i", "j", "i"]
    assert (await groups.sync(member, generation)).error_code == UNKNOWN


@pytest.mark.parametrize("version", range(MANY_FROM, 6))
async def test_no_member_leaves_by_an_empty_list(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    answer = await leave(groups.client, version, group=groups.group)
    assert (answer.error_code, answer.members) == (NONE, [])
    assert (await groups.sync(member, generation)).error_code == NONE


async def test_a_group_must_have_a_name(groups: Any, version: int) -> None:
    assert (await leave(groups.client, version, "m", group="")).error_code == ErrorCode.INVALID_GROUP_ID


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    answer = await leave(idle, version, "m", group="g")
    assert (answer.error_code, answer.members) == (ErrorCode.NOT_COORDINATOR, [])


async def test_no_member_leaves_while_groups_are_loaded(loading: Any, version: int) -> None:
    answer = await leave(loading, version, "m", group="g")
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
