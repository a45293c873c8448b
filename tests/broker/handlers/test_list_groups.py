from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_groups import ListGroupsRequest

STATES_FROM = 4
TYPES_FROM = 5


async def listed(groups: Any, version: int, **filters: Any) -> dict[str, tuple[str, str, str]]:
    """Those of this test: the shared broker has the groups of others, too."""
    answer = await groups.client.ask(ListGroupsRequest(**filters), version)
    assert answer.error_code == ErrorCode.NONE
    return {
        each.group_id.removeprefix(groups.group): (each.protocol_type, each.group_state, each.group_type)
        for each in answer.groups
        if each.group_id.startswith(groups.group)
    }


async def three_groups(groups: Any) -> None:
    """A stable classic group, one that only commits, and a consumer group."""
    await groups.stable(group_id=f"{groups.group}-stable")
    await groups.commit(7, group_id=f"{groups.group}-empty")
    await groups.consumer("m", group_id=f"{groups.group}-new")


async def test_groups_of_all_kinds_are_returned_as_far_as_the_version_can(groups: Any, version: int) -> None:
    await three_groups(groups)
    told = await listed(groups, version)
    expected = {
        "-stable": ("consumer", "Stable", "classic"),
        "-empty": ("", "Empty", "classic"),
        "-new": ("consumer", "Stable", "consumer"),
    }
    for name, (protocol, state, kind) in expected.items():
        assert told[name] == (protocol, state if version >= STATES_FROM else "", kind if version >= TYPES_FROM else "")


@pytest.mark.parametrize(
    ("states", "names"),
    [
        (["Stable"], {"-stable", "-new"}),
        (["stable"], {"-stable", "-new"}),
        (["Empty"], {"-empty"}),
        (["Empty", "Stable"], {"-stable", "-empty", "-new"}),
        (["Dead"], set()),
        (["no such state"], set()),
        ([], {"-stable", "-empty", "-new"}),
    ],
)
@pytest.mark.parametrize("version", [STATES_FROM, TYPES_FROM])
async def test_a_filter_by_state(groups: Any, version: int, states: list[str], names: set[str]) -> None:
    await three_groups(groups)
    assert set(await listed(groups, version, states_filter=states)) == names


@pytest.mark.parametrize(
    ("types", "names"),
    [
        (["classic"], {"-stable", "-empty"}),
        (["Classic"], {"-stable", "-empty"}),
        (["consumer"], {"-new"}),
        (["share"], set()),
        ([], {"-stable", "-empty", "-new"}),
    ],
)
async def test_a_filter_by_type(groups: Any, types: list[str], names: set[str]) -> None:
    await three_groups(groups)
    assert set(await listed(groups, TYPES_FROM, types_filter=types)) == names


async def test_both_filters_must_match(groups: Any) -> None:
    await three_groups(groups)
    both = await listed(groups, TYPES_FROM, types_filter=["classic"], states_filter=["stable"])
    assert set(both) == {"-stable"}


async def test_a_broker_that_coordinates_nothing_has_no_groups(idle: Any, version: int) -> None:
    answer = await idle.ask(ListGroupsRequest(), version)
    assert (answer.error_code, answer.groups) == (ErrorCode.NONE, [])


async def test_half_a_list_is_not_returned_while_groups_are_loaded(loading: Any, version: int) -> None:
    answer = await loading.ask(ListGroupsRequest(), version)
    assert (answer.error_code, answer.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
