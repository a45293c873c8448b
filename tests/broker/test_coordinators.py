"""Coordinators are made when they are first needed, and never come to life after the end."""

from __future__ import annotations

from typing import Any


async def test_a_node_without_groups_and_transactions_has_no_coordinators(start_node: Any) -> None:
    node = await start_node()
    assert node._coordinators._groups is None
    assert node._coordinators._transactions is None


async def test_a_restarted_node_has_the_coordinators_of_its_topics(start_node: Any) -> None:
    node = await start_node()
    await node._coordinators.groups.leader_of("g")
    await node._coordinators.transactions.leader_of("t")
    await node.stop()
    again = await start_node()
    assert len(list(again._coordinators._groups)) == 50
    assert len(list(again._coordinators._transactions)) == 50


async def test_one_that_is_asked_for_after_the_end_holds_nothing(start_node: Any) -> None:
    node = await start_node()
    await node._coordinators.groups.leader_of("g")
    await node.stop()
    node._coordinators._groups = None
    assert list(node._coordinators.groups) == []
    assert list(node._coordinators.transactions) == []
