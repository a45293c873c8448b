"""Which link leads where: brokers by the address they registered, the controller by who leads, one buffer per node."""

from __future__ import annotations

import pytest

from tidemark.broker.metadata.image import Image
from tidemark.broker.peers import Address, Peers, PeerUnavailable


class Cluster:
    """What a node knows of its cluster."""

    def __init__(self) -> None:
        self.image = Image()
        self.leader_id: int | None = None
        self.controllers = {1: Address("127.0.0.1", 9001), 2: Address("127.0.0.1", 9002)}

    def peers(self) -> Peers:
        return Peers(
            node_id=1,
            listener="PLAINTEXT",
            image=lambda: self.image,
            leader_id=lambda: self.leader_id,
            controllers=lambda: self.controllers,
        )


def test_without_a_leader_there_is_no_link_to_the_controller() -> None:
    with pytest.raises(PeerUnavailable, match="no controller"):
        Cluster().peers().to_controller()


def test_a_broker_that_is_not_registered_has_no_link() -> None:
    with pytest.raises(PeerUnavailable, match="broker 7 has no address"):
        Cluster().peers().to_broker(7)


def test_requests_to_the_controller_follow_the_leader() -> None:
    cluster = Cluster()
    peers = cluster.peers()
    cluster.leader_id = 1
    first = peers.to_controller()
    assert first.port == 9001
    assert peers.to_controller() is first
    cluster.leader_id = 2
    assert peers.to_controller().port == 9002


def test_a_member_that_has_moved_gets_a_new_link() -> None:
    cluster = Cluster()
    peers = cluster.peers()
    first = peers.to_member(2, purpose="quorum")
    cluster.controllers = {2: Address("127.0.0.1", 9999)}
    assert peers.to_member(2, purpose="quorum").port == 9999
    assert peers.to_member(2, purpose="quorum") is not first


def test_the_links_of_one_node_share_a_buffer_and_two_nodes_do_not() -> None:
    one, other = Cluster().peers(), Cluster().peers()
    assert one.to_member(1).scratch is one.to_member(2).scratch
    assert one.to_member(1).scratch is not other.to_member(1).scratch
