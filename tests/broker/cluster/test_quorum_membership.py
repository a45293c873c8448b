"""A node's place in the quorum, at a leader of one: who joins, who gets a vote, and who is heard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness.ports import free_port

from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.cluster.quorum_membership import QuorumMembership
from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.peers import Address
from tidemark.broker.peers.peers import client_id_of
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.raft_message import RaftMessageRequest

ELSEWHERE = Address("127.0.0.1", 1)  # nothing listens there


class Quorum:
    def __init__(self, path: Path) -> None:
        port = free_port()
        config = load_config(
            overrides={
                "node.id": 1,
                "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": f"1@127.0.0.1:{port}",
                "log.dirs": path,
            }
        )
        self.own_address = Address("127.0.0.1", port)
        self.lost: list[int] = []
        self.membership = QuorumMembership(
            config,
            MetadataDirectory(path / "metadata"),
            cluster_id=lambda: "",
            broker_lost=self.lost.append,
            failed=lambda error: pytest.fail(str(error)),
        )

    @property
    def configuration(self) -> Any:
        return self.membership.store.driver.node.configuration

    @property
    def is_settled(self) -> bool:
        """Whether its own address is in the configuration: changes come one by one."""
        node = self.membership.store.driver.node
        return self.membership._is_known() and node.configuration_index <= node.commit_index

    async def refused(self, change: Any) -> ErrorCode:
        with pytest.raises(Refused) as refusal:
            await change
        return refusal.value.code


@pytest.fixture
async def quorum(tmp_path: Path) -> AsyncIterator[Quorum]:
    quorum = Quorum(tmp_path)
    await quorum.membership.start()
    async with asyncio.timeout(20):
        while not quorum.is_settled:
            await asyncio.sleep(0.01)
    yield quorum
    await quorum.membership.close()


async def test_a_quorum_of_one_leads_itself(quorum: Quorum) -> None:
    assert quorum.membership.store.is_controller
    assert quorum.configuration.voters == (1,)
    assert quorum.membership.addresses() == {1: quorum.own_address}
    assert not quorum.membership.is_isolated


async def test_a_node_follows_without_a_vote_and_is_found_where_it_moves(quorum: Quorum) -> None:
    await quorum.membership.add_observer(2, host="a", port=1, cluster_id="")
    assert quorum.membership.addresses()[2] == Address("a", 1)
    index = quorum.membership.store.driver.node.configuration_index
    await quorum.membership.add_observer(2, host="a", port=1, cluster_id="")
    assert quorum.membership.store.driver.node.configuration_index == index  # it is so already
    await quorum.membership.add_observer(2, host="b", port=2, cluster_id="")
    assert quorum.membership.addresses()[2] == Address("b", 2)
    assert (quorum.configuration.voters, quorum.configuration.learners) == ((1,), (2,))


async def test_a_node_that_never_answers_gets_no_vote_so_that_the_others_stay_enough(quorum: Quorum) -> None:
    change = quorum.membership.add_voter(2, address=ELSEWHERE, seconds_max=0.0)
    assert await quorum.refused(change) == ErrorCode.REQUEST_TIMED_OUT
    assert (quorum.configuration.voters, quorum.configuration.learners) == ((1,), (2,))
    await quorum.membership.store.change(lambda _image: [])  # and so the metadata can still change


async def test_votes_that_cannot_be_given_or_taken(quorum: Quorum) -> None:
    again = quorum.membership.add_voter(1, address=None, seconds_max=1.0)
    assert await quorum.refused(again) == ErrorCode.DUPLICATE_VOTER
    nowhere = quorum.membership.add_voter(2, address=None, seconds_max=1.0)
    assert await quorum.refused(nowhere) == ErrorCode.INVALID_REQUEST
    assert await quorum.refused(quorum.membership.remove_voter(2)) == ErrorCode.VOTER_NOT_FOUND
    assert await quorum.refused(quorum.membership.remove_voter(1)) == ErrorCode.INVALID_REQUEST
    assert {each.node_id for each in quorum.configuration.members} == {1}


async def test_an_observer_that_is_gone_for_good_is_forgotten_and_a_voter_is_not(quorum: Quorum) -> None:
    await quorum.membership.add_observer(2, host="a", port=1, cluster_id="")
    await quorum.membership.remove_observer(2)
    await quorum.membership.remove_observer(1)
    await quorum.membership.remove_observer(9)
    assert {each.node_id for each in quorum.configuration.members} == {1}


async def test_a_lost_connection_of_another_node_is_told_on(quorum: Quorum) -> None:
    for client_id in (client_id_of(1), "some client", None):
        quorum.membership.connection_closed(client_id)
    assert quorum.lost == []
    quorum.membership.connection_closed(client_id_of(2))
    assert quorum.lost == [2]


async def test_the_words_of_a_stranger_are_not_taken_for_those_of_a_member(quorum: Quorum) -> None:
    before = quorum.membership._heard_at
    quorum.membership.receive(RaftMessageRequest(sender=9, data=b"\xff" * 20))
    assert quorum.membership._heard_at == before
    assert quorum.membership.store.is_controller
