"""How the quorum's messages travel: over links to the members' controller listeners, without answers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.broker.peers.link import PeerUnavailable
from tidemark.broker.peers.peers import Address, Peers
from tidemark.broker.peers.raft_identity import QuorumIdentity
from tidemark.environment import monotonic
from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.protocol.schema import api, codec
from tidemark.raft import NO_DIRECTORY, Configuration, DroppedMessages, Member, Node

log = logging.getLogger(__name__)

_API: Final = api(RaftMessageRequest)
_encode = codec(RaftMessageRequest, _API.versions.last).encode


class QuorumTransport:
    def __init__(self, identity: QuorumIdentity) -> None:
        self._identity = identity
        self._peers: Peers | None = None
        self._node: Callable[[], Node] | None = None
        self._dropped = DroppedMessages(log, clock=monotonic)

    def connect(self, peers: Peers, node: Callable[[], Node]) -> None:
        """Until then messages are lost, which the quorum bears: its node is made with this transport, and needs it."""
        self._peers, self._node = peers, node

    def send(self, to: int, data: bytes) -> None:
        if self._peers is None or self._node is None:
            return
        member = self._node().configuration.member(to)
        request = RaftMessageRequest(
            sender=self._identity.node_id,
            data=data,
            cluster_id=self._identity.cluster_id(),
            sender_directory_id=self._identity.directory_id,
            receiver_directory_id=NO_DIRECTORY if member is None else member.directory_id,
        )
        body = bytearray()
        _encode(request, body)
        try:
            link = self._peers.to_member(to, purpose="quorum")
        except PeerUnavailable:
            return
        link.post(_API.key, _API.versions.last, body, flexible=True)

    def accepts(self, request: RaftMessageRequest) -> bool:
        """Whether a message that arrived may be given to the node; if not, that is logged."""
        if self._node is None:
            return False
        reason = self._identity.why_refused(request, self._node())
        if reason is not None:
            self._dropped.note(f"from node {request.sender}: {reason}")
        return reason is None


def member_of(node_id: int, address: Address, *, is_voter: bool = True, directory_id: bytes = NO_DIRECTORY) -> Member:
    return Member(node_id=node_id, is_voter=is_voter, detail=detail_of(address), directory_id=directory_id)


def detail_of(address: Address) -> bytes:
    """What the quorum's configuration says about a member beside its ids."""
    return f"{address.host}:{address.port}".encode()


def addresses_of(configuration: Configuration) -> Mapping[int, Address]:
    found = {}
    for member in configuration.members:
        host, colon, port = member.detail.decode(errors="replace").rpartition(":")
        if colon and port.isdigit():
            found[member.node_id] = Address(host, int(port))
    return found
