from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_groups import DeleteGroupsRequest

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


async def delete(client: Any, version: int, *groups: str) -> list[tuple[str, int]]:
    answer = await client.ask(DeleteGroupsRequest(groups_names=list(groups)), version)
    return [(each.group_id, each.error_code) for each in answer.results]


async def test_an_empty_group_goes_with_its_offsets(groups: Any, version: int) -> None:
    await groups.commit(7)
    assert await delete(groups.client, version, groups.group) == [(groups.group, 0)]
    assert await groups.committed() == -1
    assert await delete(groups.client, version, groups.group) == [(groups.group, NOT_FOUND)]


async def test_a_group_with_members_stays_and_the_others_go(groups: Any, version: int) -> None:
    mine, other = groups.group, f"{groups.group}-other"
    member, generation = await groups.stable()
    await groups.commit(7, group_id=other)
    told = dict(await delete(groups.client, version, mine, other, "no-such-group"))
    assert told == {mine: ErrorCode.NON_EMPTY_GROUP, other: 0, "no-such-group": NOT_FOUND}
    assert (await groups.sync(member, generation)).error_code == 0


async def test_a_consumer_group_is_deleted_when_its_last_member_has_left(groups: Any, version: int) -> None:
    await groups.consumer("m")
    assert await delete(groups.client, version, groups.group) == [(groups.group, ErrorCode.NON_EMPTY_GROUP)]
    await groups.consumer("m", -1)
    assert await delete(groups.client, version, groups.group) == [(groups.group, 0)]


async def test_a_group_that_is_named_twice_is_answered_once(groups: Any, version: int) -> None:
    await groups.commit(7)
    assert await delete(groups.client, version, groups.group, groups.group) == [(groups.group, 0)]


async def test_a_group_without_a_name_is_like_others(groups: Any, version: int) -> None:
    await groups.commit(7, group_id="")
    assert await delete(groups.client, version, "") == [("", 0)]
    assert await delete(groups.client, version, "") == [("", NOT_FOUND)]


async def test_nothing_is_deleted_by_an_empty_list(shared: Any, version: int) -> None:
    assert await delete(shared, version) == []


async def test_a_broker_that_does_not_coordinate_says_so(idle: Any, version: int) -> None:
    assert await delete(idle, version, "g") == [("g", ErrorCode.NOT_COORDINATOR)]


async def test_nothing_is_deleted_while_groups_are_loaded(loading: Any, version: int) -> None:
    assert await delete(loading, version, "g") == [("g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
