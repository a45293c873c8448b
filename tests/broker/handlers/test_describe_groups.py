from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_groups import DescribeGroupsRequest

OPERATIONS_FROM = 3
INSTANCE_IDS_FROM = 4
NOT_FOUND_FROM = 6
NOT_ASKED_FOR = -(2**31)


async def describe(client: Any, version: int, *groups: str, operations: bool = False) -> list[Any]:
    request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
    answer = await client.ask(request, version)
    return list(answer.groups)


async def test_a_stable_group_is_returned_with_its_members(groups: Any, version: int) -> None:
    member, _ = await groups.stable(assignment=b"mine")
    (group,) = await describe(groups.client, version, groups.group)
    assert (group.error_code, group.group_id, group.group_state) == (0, groups.group, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (told,) = group.members
    assert (told.member_id, told.client_id) == (member, "test")
    assert told.client_host == "/127.0.0.1"
    assert (bytes(told.member_metadata), bytes(told.member_assignment)) == (groups.subscription, b"mine")


async def test_instance_ids_are_returned_from_version_4_on(groups: Any, version: int) -> None:
    await groups.stable(group_instance_id="i")
    ((told,),) = [group.members for group in await describe(groups.client, version, groups.group)]
    assert told.group_instance_id == ("i" if version >= INSTANCE_IDS_FROM else None)


async def test_during_a_rebalance_neither_protocol_nor_assignments_are_returned(groups: Any, version: int) -> None:
    joined = await groups.join(await groups.new_member_id())
    (group,) = await describe(groups.client, version, groups.group)
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    (told,) = group.members
    assert told.member_id == joined.member_id
    assert (bytes(told.member_metadata), bytes(told.member_assignment)) == (b"", b"")


async def test_a_group_that_only_commits_is_empty(groups: Any, version: int) -> None:
    await groups.commit(7)
    (group,) = await describe(groups.client, version, groups.group)
    assert (group.error_code, group.group_state, group.members) == (0, "Empty", [])


@pytest.mark.parametrize("kind", ["absent", "consumer"])
async def test_what_is_no_classic_group_is_not_found(groups: Any, version: int, kind: str) -> None:
    if kind == "consumer":
        await groups.consumer("m")
    (group,) = await describe(groups.client, version, groups.group)
    assert (group.group_state, group.members) == ("Dead", [])
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= NOT_FOUND_FROM else 0)
    assert (group.error_message is not None) == (version >= NOT_FOUND_FROM)


async def test_authorized_operations_are_returned_when_asked_for(groups: Any, version: int) -> None:
    await groups.stable()
    (silent,) = await describe(groups.client, version, groups.group)
    assert silent.authorized_operations == NOT_ASKED_FOR
    if version >= OPERATIONS_FROM:
        (group,) = await describe(groups.client, version, groups.group, operations=True)
        read, delete, describe_bit, describe_configs, alter_configs = 3, 6, 8, 10, 11
        told = {bit for bit in range(32) if group.authorized_operations >> bit & 1}
        assert told == {read, delete, describe_bit, describe_configs, alter_configs}


async def test_many_groups_and_no_group(groups: Any, version: int) -> None:
    await groups.stable()
    told = await describe(groups.client, version, groups.group, "no-such-group", "")
    states = {group.group_id: group.group_state for group in told}
    assert states == {groups.group: "Stable", "no-such-group": "Dead", "": "Dead"}
    assert await describe(groups.client, version) == []


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    (group,) = await describe(idle, version, "g")
    assert (group.group_id, group.error_code) == ("g", ErrorCode.NOT_COORDINATOR)


async def test_nothing_is_returned_while_groups_are_loaded(loading: Any, version: int) -> None:
    (group,) = await describe(loading, version, "g")
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
