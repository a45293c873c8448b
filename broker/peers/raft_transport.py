"""How the quorum's messages travel: over links to the members' controller listeners, without answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.broker.peers.link import PeerUnavailable
from tidemark.broker.peers.peers import Address, Peers
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.protocol.schema import api, codec
from tidemark.raft import Configuration, Member

_API: Final = api(RaftMessageRequest)
_encode = codec(RaftMessageRequest, _API.versions.last).encode


class QuorumTransport:
    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self.peers: Peers | None = None  # set when there are any; until then messages are lost, which the quorum bears

    def send(self, to: int, data: bytes) -> None:
        if self.peers is None:
            return
        body = bytearray()
        _encode(RaftMessageRequest(sender=self._node_id, data=data), body)
        try:
            link = self.peers.to_member(to, purpose="quorum")
        except PeerUnavailable:
            return
        link.post(_API.key, _API.versions.last, body, flexible=True)


def member_of(node_id: int, address: Address, *, is_voter: bool = True) -> Member:
    return Member(node_id=node_id, is_voter=is_voter, detail=detail_of(address))


def detail_of(address: Address) -> bytes:
    """What the quorum's configuration says about a member beside its id."""
    return f"{address.host}:{address.port}".encode()


def addresses_of(configuration: Configuration) -> Mapping[int, Address]:
    found = {}
    for member in configuration.members:
        host, colon, port = member.detail.decode(errors="replace").rpartition(":")
        if colon and port.isdigit():
            found[member.node_id] = Address(host, int(port))
    return found
