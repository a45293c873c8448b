"""Whose messages a member of the quorum takes: those of its own cluster, from and to the disks that have the votes."""

from __future__ import annotations

from random import Random

import pytest

from tidemark.broker.peers.raft_identity import QuorumIdentity
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.protocol.schema import codec
from tidemark.raft import NO_DIRECTORY, Configuration, Member, Node

OURS, THEIRS = "our-cluster", "their-cluster"
DIRECTORIES = {number: bytes([number]) * 16 for number in (1, 2, 3, 4, 9)}


def member(number: int, *, has_directory: bool = True) -> Member:
    return Member(node_id=number, directory_id=DIRECTORIES[number] if has_directory else NO_DIRECTORY)


def new_node(*members: Member) -> Node:
    return Node(1, Configuration(members), random=Random(1))


def identity(*, cluster_id: str = OURS, directory_id: bytes = DIRECTORIES[1]) -> QuorumIdentity:
    return QuorumIdentity(node_id=1, directory_id=directory_id, cluster_id=lambda: cluster_id)


def message(sender: int = 2, **fields: object) -> RaftMessageRequest:
    """As a member sends it, but for what is said here."""
    known = {
        "cluster_id": OURS,
        "sender_directory_id": DIRECTORIES[sender],
        "receiver_directory_id": DIRECTORIES[1],
    }
    return RaftMessageRequest(sender=sender, data=b"data", **{**known, **fields})  # type: ignore[arg-type]


@pytest.fixture
def node() -> Node:
    return new_node(member(1), member(2), member(3))


def test_a_member_is_heard(node: Node) -> None:
    assert identity().why_refused(message(), node) is None


def test_another_cluster_with_a_wrong_address_is_not_heard(node: Node) -> None:
    reason = identity().why_refused(message(cluster_id=THEIRS), node)
    assert reason == "it is of cluster their-cluster, and this is cluster our-cluster"


def test_a_voter_that_came_back_with_an_empty_disk_is_not_heard(node: Node) -> None:
    reason = identity().why_refused(message(sender_directory_id=DIRECTORIES[9]), node)
    assert reason is not None
    assert "disk of that node replaced" in reason
    assert identity().why_refused(message(sender_directory_id=NO_DIRECTORY), node) is not None


def test_a_node_whose_own_disk_was_replaced_takes_nothing_that_was_meant_for_the_old_one(node: Node) -> None:
    replaced = identity(directory_id=DIRECTORIES[9])
    reason = replaced.why_refused(message(), new_node(member(1, has_directory=False), member(2)))
    assert reason is not None
    assert "disk of this node replaced" in reason


def test_a_stranger_is_not_heard(node: Node) -> None:
    for fields in (
        {"cluster_id": "", "sender_directory_id": NO_DIRECTORY, "receiver_directory_id": NO_DIRECTORY},
        {"cluster_id": "", "receiver_directory_id": DIRECTORIES[1]},
        {"receiver_directory_id": NO_DIRECTORY},
    ):
        assert identity().why_refused(message(9, **fields), node) == "its sender is no member of the quorum"


def test_a_member_that_was_added_while_this_node_was_away_is_heard(node: Node) -> None:
    assert identity().why_refused(message(4), node) is None


def test_a_node_that_joins_hears_whoever_does_not_speak_to_another(node: Node) -> None:
    joining = new_node()
    assert identity(cluster_id="").why_refused(message(2), joining) is None
    assert identity(cluster_id="").why_refused(message(2, receiver_directory_id=DIRECTORIES[9]), joining) is not None


def test_members_without_directory_ids_are_heard_as_before() -> None:
    """A quorum from before there were any, while its nodes are upgraded one by one."""
    node = new_node(member(1, has_directory=False), member(2, has_directory=False))
    old = message(cluster_id="", sender_directory_id=NO_DIRECTORY, receiver_directory_id=NO_DIRECTORY)
    assert identity().why_refused(old, node) is None
    stranger = message(9, cluster_id="", sender_directory_id=NO_DIRECTORY, receiver_directory_id=NO_DIRECTORY)
    assert identity().why_refused(stranger, node) is not None


def test_a_tidemark_from_before_the_ids_can_read_the_envelope() -> None:
    body = bytearray()
    codec(RaftMessageRequest, 0).encode(message(), body)
    assert body.startswith(b"\0\0\0\2\5data")  # sender and data are where they always were; the ids are tags behind
    assert codec(RaftMessageRequest, 0).decode(memoryview(body)) == message()
    bare = RaftMessageRequest(sender=2, data=b"data")
    assert codec(RaftMessageRequest, 0).decode(memoryview(b"\0\0\0\2\5data\0")) == bare
