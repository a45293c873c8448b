from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest

DURATIONS_FROM = 1
PATTERNS_FROM = 2


async def listed(txn: Any, name: str, version: int, **filters: Any) -> dict[str, tuple[int, str]]:
    """Those of this test: the shared broker has those of others, too."""
    answer = await txn.client.ask(ListTransactionsRequest(**filters), version)
    assert answer.error_code == ErrorCode.NONE
    return {
        each.transactional_id.removeprefix(name): (each.producer_id, each.transaction_state)
        for each in answer.transaction_states
        if each.transactional_id.startswith(name)
    }


async def two_transactions(txn: Any, name: str) -> tuple[int, int]:
    """The producer ids of one that is ongoing and one that is empty."""
    ongoing, empty = await txn.start(f"{name}-ongoing"), await txn.start(f"{name}-empty")
    await txn.add(f"{name}-ongoing", ongoing, 0)
    return ongoing[0], empty[0]


async def test_transactional_ids_are_returned_with_producer_and_state(txn: Any, name: str, version: int) -> None:
    ongoing, empty = await two_transactions(txn, name)
    assert await listed(txn, name, version) == {"-ongoing": (ongoing, "Ongoing"), "-empty": (empty, "Empty")}


async def test_filters_by_state_and_producer(txn: Any, name: str, version: int) -> None:
    ongoing, empty = await two_transactions(txn, name)
    assert set(await listed(txn, name, version, state_filters=["Ongoing"])) == {"-ongoing"}
    assert set(await listed(txn, name, version, producer_id_filters=[empty])) == {"-empty"}
    both = await listed(txn, name, version, state_filters=["Empty"], producer_id_filters=[ongoing])
    assert both == {}


async def test_states_that_do_not_exist_are_returned(txn: Any, name: str, version: int) -> None:
    await two_transactions(txn, name)
    request = ListTransactionsRequest(state_filters=["no such state", "Ongoing"])
    answer = await txn.client.ask(request, version)
    assert answer.unknown_state_filters == ["no such state"]
    assert {each.transaction_state for each in answer.transaction_states} == {"Ongoing"}
    only_unknown = await txn.client.ask(ListTransactionsRequest(state_filters=["x"]), version)
    assert (only_unknown.unknown_state_filters, only_unknown.transaction_states) == (["x"], [])


@pytest.mark.parametrize("version", [DURATIONS_FROM, PATTERNS_FROM])
async def test_a_filter_by_how_long_a_transaction_has_run(txn: Any, name: str, version: int) -> None:
    await two_transactions(txn, name)
    assert "-ongoing" not in await listed(txn, name, version, duration_filter=3_600_000)
    async with asyncio.timeout(20):
        while "-ongoing" not in await listed(txn, name, version, duration_filter=1):
            await asyncio.sleep(0.001)


async def test_a_filter_by_a_pattern(txn: Any, name: str) -> None:
    await two_transactions(txn, name)
    found = await listed(txn, name, PATTERNS_FROM, transactional_id_pattern=f"{name}-on.*")
    assert set(found) == {"-ongoing"}
    assert await listed(txn, name, PATTERNS_FROM, transactional_id_pattern="-on.*") == {}  # it must match whole
    assert len(await listed(txn, name, PATTERNS_FROM, transactional_id_pattern="")) == 2
    broken = await txn.client.ask(ListTransactionsRequest(transactional_id_pattern="("), PATTERNS_FROM)
    assert (broken.error_code, broken.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


async def test_a_broker_that_coordinates_nothing_lists_nothing(idle: Any, version: int) -> None:
    answer = await idle.ask(ListTransactionsRequest(), version)
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.NONE, [])


async def test_half_a_list_is_not_returned_while_transactions_are_loaded(loading: Any, version: int) -> None:
    answer = await loading.ask(ListTransactionsRequest(), version)
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
