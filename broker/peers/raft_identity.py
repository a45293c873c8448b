"""Whether a message of a quorum is meant for this node and comes from a member: what is not ours is dropped.

Each message names the cluster, the directory that its sender's log is on, and the directory that the receiver's log is
on as far as the sender knows (KIP-853). So a node of another cluster with a wrong address, a voter that came back with
an empty disk, and a program that only knows the protocol are told apart from members. This is no
security: a program that has read the ids can repeat them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark.protocol.messages.raft_message import RaftMessageRequest
from tidemark.raft import NO_DIRECTORY, Node


def _nothing_known() -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumIdentity:
    """This node, as the other members of its quorum know it."""

    node_id: int
    directory_id: bytes = NO_DIRECTORY
    cluster_id: Callable[[], str] = _nothing_known  # empty until the cluster is known

    def why_refused(self, request: RaftMessageRequest, node: Node) -> str | None:
        """None if the message is acceptable; otherwise what is wrong with it."""
        own_cluster, own_directory = self.cluster_id(), self.directory_id
        if own_cluster and request.cluster_id and request.cluster_id != own_cluster:
            return f"it is of cluster {request.cluster_id}, and this is cluster {own_cluster}"
        is_addressed = request.receiver_directory_id != NO_DIRECTORY
        if is_addressed and own_directory not in (NO_DIRECTORY, request.receiver_directory_id):
            return "it is for another directory than this node's: was the disk of this node replaced?"
        if not node.configuration.members:
            return None  # a node that joins has nothing to compare with, and nothing to lose
        return self._why_not_from_a_member(request, node, is_addressed=is_addressed)

    def _why_not_from_a_member(self, request: RaftMessageRequest, node: Node, *, is_addressed: bool) -> str | None:
        member = node.configuration.member(request.sender)
        if member is not None:
            if member.directory_id in (NO_DIRECTORY, request.sender_directory_id):
                return None
            return "it comes from another directory than the member's: was the disk of that node replaced?"
        if node.knows(request.sender):
            return None
        # It may have been added while this node was away. Then it names our cluster, which a stranger does not, and if
        # the configuration has our directory, that too.
        if request.cluster_id and request.cluster_id == self.cluster_id():
            own = node.configuration.member(self.node_id)
            if is_addressed or own is None or own.directory_id == NO_DIRECTORY:
                return None
        return "its sender is no member of the quorum"
