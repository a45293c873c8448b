from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest

INSTANCE_IDS_FROM = 3


async def beat(groups: Any, member_id: str, generation: int, version: int = 4, **fields: Any) -> ErrorCode:
    known = {"group_id": groups.group, "generation_id": generation, "member_id": member_id}
    return ErrorCode((await groups.client.ask(HeartbeatRequest(**known | fields), version)).error_code)


async def test_a_member_of_a_stable_group_is_well(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    assert await beat(groups, member, generation, version) == ErrorCode.NONE


async def test_a_member_hears_that_another_joins(groups: Any, shared_broker: Any, connect: Any, version: int) -> None:
    member, generation = await groups.stable()
    other = await connect(shared_broker)
    other.send(groups.join_request(await groups.new_member_id()), 9)
    await other.writer.drain()
    while (code := await beat(groups, member, generation, version)) == ErrorCode.NONE:
        pass
    assert code == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_member_that_waits_for_its_assignment_is_well(groups: Any) -> None:
    joined = await groups.join(await groups.new_member_id())
    assert await beat(groups, joined.member_id, joined.generation_id) == ErrorCode.NONE


async def test_a_caller_that_is_no_member_of_this_generation_is_refused(groups: Any, version: int) -> None:
    member, generation = await groups.stable()
    assert await beat(groups, member, generation - 1, version) == ErrorCode.ILLEGAL_GENERATION
    assert await beat(groups, member, generation + 1, version) == ErrorCode.ILLEGAL_GENERATION
    assert await beat(groups, "stranger", generation, version) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(groups, member, generation, version, group_id="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(groups, member, generation, version) == ErrorCode.NONE


async def test_a_member_id_that_was_only_given_out_is_no_member(groups: Any) -> None:
    member, generation = await groups.stable()
    assert await beat(groups, await groups.new_member_id(), generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await beat(groups, member, generation) == ErrorCode.NONE


@pytest.mark.parametrize("version", [INSTANCE_IDS_FROM, 4])
async def test_a_static_member_is_fenced_by_its_successor(groups: Any, version: int) -> None:
    old, generation = await groups.stable(group_instance_id="i")
    assert await beat(groups, old, generation, version, group_instance_id="i") == ErrorCode.NONE
    new = await groups.join(group_instance_id="i")
    again = await beat(groups, old, new.generation_id, version, group_instance_id="i")
    assert again == ErrorCode.FENCED_INSTANCE_ID
    assert await beat(groups, old, generation, version, group_instance_id="j") == ErrorCode.UNKNOWN_MEMBER_ID


async def test_a_group_must_have_a_name(groups: Any, version: int) -> None:
    assert await beat(groups, "m", 1, version, group_id="") == ErrorCode.INVALID_GROUP_ID


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert (await idle.ask(HeartbeatRequest(group_id="g"), version)).error_code == ErrorCode.NOT_COORDINATOR


async def test_while_groups_are_loaded_every_member_is_well(loading: Any, version: int) -> None:
    request = HeartbeatRequest(group_id="g", member_id="anybody", generation_id=99)
    assert (await loading.ask(request, version)).error_code == ErrorCode.NONE
