"""The quorum's messages on their way: one envelope each, over the link to the member's controller listener."""

from __future__ import annotations

from random import Random

import pytest

from tidemark.broker.metadata.image import Image
from tidemark.broker.peers import Address, Peers
from tidemark.broker.peers.raft_identity import QuorumIdentity
from tidemark.broker.peers.raft_transport import QuorumTransport, addresses_of, detail_of, member_of
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.protocol.schema import codec
from tidemark.raft import Configuration, Member, Node

ONE, TWO = bytes([1]) * 16, bytes([2]) * 16


class Posts:
    """Links that remember what they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[RaftMessageRequest] = []
        monkeypatch.setattr("tidemark.broker.peers.link.PeerLink.post", self._post)

    def _post(self, key: int, version: int, body: bytearray, *, flexible: bool) -> bool:
        self.requests.append(codec(RaftMessageRequest, version).decode(memoryview(bytes(body))))
        return True


def transport() -> QuorumTransport:
    members = Configuration((Member(node_id=1, directory_id=ONE), Member(node_id=2, directory_id=TWO)))
    node = Node(1, members, random=Random(1))
    peers = Peers(
        node_id=1,
        listener="PLAINTEXT",
        image=Image,
        leader_id=lambda: None,
        controllers=lambda: {2: Address("127.0.0.1", 9002)},
    )
    made = QuorumTransport(QuorumIdentity(node_id=1, directory_id=ONE, cluster_id=lambda: "our-cluster"))
    made.connect(peers, lambda: node)
    return made


def test_a_message_is_lost_while_there_are_no_peers() -> None:
    QuorumTransport(QuorumIdentity(node_id=1)).send(2, b"a message")


def test_a_message_for_a_member_without_an_address_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = Posts(monkeypatch)
    transport().send(3, b"a message")
    assert posts.requests == []


def test_a_message_names_the_cluster_and_both_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = Posts(monkeypatch)
    transport().send(2, b"a message")
    assert posts.requests == [
        RaftMessageRequest(
            sender=1,
            data=b"a message",
            cluster_id="our-cluster",
            sender_directory_id=ONE,
            receiver_directory_id=TWO,
        )
    ]


def test_what_is_not_ours_is_dropped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    receiver = transport()
    good = RaftMessageRequest(
        sender=2, data=b"", cluster_id="our-cluster", sender_directory_id=TWO, receiver_directory_id=ONE
    )
    assert receiver.accepts(good)
    foreign = RaftMessageRequest(sender=2, data=b"", cluster_id="another", sender_directory_id=TWO)
    assert not any(receiver.accepts(foreign) for _ in range(100))
    assert len(caplog.records) == 1
    assert "another" in caplog.text


def test_an_address_survives_the_way_through_the_configuration() -> None:
    members = (member_of(1, Address("one.example", 9093)), member_of(2, Address("::1", 9094), is_voter=False))
    assert addresses_of(Configuration(members)) == {1: Address("one.example", 9093), 2: Address("::1", 9094)}
    assert detail_of(Address("one.example", 9093)) == b"one.example:9093"


def test_a_member_whose_address_cannot_be_read_has_none() -> None:
    members = (Member(node_id=1, detail=b""), Member(node_id=2, detail=b"host:port"), Member(node_id=3, detail=b"9093"))
    assert addresses_of(Configuration(members)) == {}
