from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest

CONSUMER_MEMBER, NOT_TOLD = 1, -1
MEMBER_TYPES_FROM = 1


async def describe(client: Any, version: int, *groups: str, operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(groups), include_authorized_operations=operations)
    return list((await client.ask(request, version)).groups)


async def test_a_group_is_returned_with_what_its_members_own_and_shall_own(groups: Any, version: int) -> None:
    epoch = (await groups.consumer("m", instance_id="i", rack_id="r")).member_epoch
    (group,) = await describe(groups.client, version, groups.group)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (epoch, epoch)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", epoch)
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert member.subscribed_topic_names == [groups.topic]
    for assignment in (member.assignment, member.target_assignment):
        ((name, indexes),) = [(each.topic_name, sorted(each.partitions)) for each in assignment.topic_partitions]
        assert (name, indexes) == (groups.topic, [0, 1, 2])
    assert member.member_type == (CONSUMER_MEMBER if version >= MEMBER_TYPES_FROM else NOT_TOLD)


async def test_a_group_whose_members_have_left_is_empty(groups: Any, version: int) -> None:
    await groups.consumer("m")
    await groups.consumer("m", -1)
    (group,) = await describe(groups.client, version, groups.group)
    assert (group.error_code, group.group_state, group.members) == (0, "Empty", [])


async def test_what_is_no_consumer_group_is_not_found(groups: Any, version: int) -> None:
    await groups.stable()
    classic, absent = await describe(groups.client, version, groups.group, "no-such-group")
    for group in (classic, absent):
        assert (group.error_code, group.members) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
        assert group.group_id in group.error_message


async def test_a_group_must_have_a_name(shared: Any, groups: Any, version: int) -> None:
    (group,) = await describe(shared, version, "")
    assert (group.group_id, group.error_code) == ("", ErrorCode.INVALID_GROUP_ID)
    assert await describe(shared, version) == []


async def test_authorized_operations_are_returned_when_asked_for(groups: Any, version: int) -> None:
    await groups.consumer("m")
    (silent,) = await describe(groups.client, version, groups.group)
    (group,) = await describe(groups.client, version, groups.group, operations=True)
    assert silent.authorized_operations == -(2**31)
    assert {bit for bit in range(32) if group.authorized_operations >> bit & 1} == {3, 6, 8, 10, 11}


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    (group,) = await describe(idle, version, "g")
    assert (group.group_id, group.error_code) == ("g", ErrorCode.NOT_COORDINATOR)


async def test_nothing_is_returned_while_groups_are_loaded(loading: Any, version: int) -> None:
    (group,) = await describe(loading, version, "g")
    assert group.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
