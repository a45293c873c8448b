"""Which link leads where: brokers by the address they registered, the controller by who leads, one buffer per node."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tidemark.broker.metadata.image import BrokerImage, Image
from tidemark.broker.metadata.records import Endpoint
from tidemark.broker.peers import Address, Peers, PeerUnavailable
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


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


@pytest.mark.parametrize("purpose", ["transactions", "clients Fetch"])
async def test_no_request_waits_for_a_broker_that_is_fenced(purpose: str) -> None:
    """The broker's machine is gone: its connection stays open, and it answers nothing. Clients of another node, who
    speak HTTP, are asked for over the quorum's listener."""
    asked = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(never_answer, "127.0.0.1", 0)
    endpoint = Endpoint(name="PLAINTEXT", host="127.0.0.1", port=server.sockets[0].getsockname()[1])
    alive = BrokerImage(broker_id=2, broker_epoch=5, rack=None, endpoints={"PLAINTEXT": endpoint})
    cluster = Cluster()
    cluster.image = Image(brokers={2: alive})
    cluster.controllers[2] = Address(endpoint.host, endpoint.port)
    peers = cluster.peers()
    link = (peers.to_member if purpose.startswith("clients") else peers.to_broker)(2, purpose=purpose)
    waiting = asyncio.create_task(link.send(ApiVersionsRequest(), version=0, timeout=60, response=ApiVersionsResponse))
    await asyncio.wait_for(asked.wait(), 10)
    fenced = Image(brokers={2: replace(alive, fenced=True)})
    peers.follow(cluster.image, cluster.image)
    assert link.is_connected
    peers.follow(cluster.image, fenced)
    with pytest.raises(PeerUnavailable, match="is gone"):
        await asyncio.wait_for(waiting, 5)
    await peers.close()
    server.close()
    await server.wait_closed()
