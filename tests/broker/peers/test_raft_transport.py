"""The quorum's messages on their way: one envelope each, over the link to the member's controller listener."""

from __future__ import annotations

from tidemark.broker.peers import Address
from tidemark.broker.peers.raft_transport import QuorumTransport, addresses_of, detail_of, member_of
from tidemark.raft import Configuration, Member


def test_a_message_is_lost_while_there_are_no_peers() -> None:
    QuorumTransport(1).send(2, b"a message")


def test_an_address_survives_the_way_through_the_configuration() -> None:
    members = (member_of(1, Address("one.example", 9093)), member_of(2, Address("::1", 9094), is_voter=False))
    assert addresses_of(Configuration(members)) == {1: Address("one.example", 9093), 2: Address("::1", 9094)}
    assert detail_of(Address("one.example", 9093)) == b"one.example:9093"


def test_a_member_whose_address_cannot_be_read_has_none() -> None:
    members = (Member(node_id=1, detail=b""), Member(node_id=2, detail=b"host:port"), Member(node_id=3, detail=b"9093"))
    assert addresses_of(Configuration(members)) == {}
