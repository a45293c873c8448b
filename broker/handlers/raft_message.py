"""RaftMessage (our own): a message of the metadata quorum. What is to be said to it goes as another such message."""

from __future__ import annotations

from tidemark.broker.cluster.quorum_membership import QuorumMembership
from tidemark.broker.core.registry import NO_ANSWER, Call, handles
from tidemark.protocol.messages.raft_message import RaftMessageRequest, RaftMessageResponse


@handles(RaftMessageRequest, RaftMessageResponse)
def raft_message(request: RaftMessageRequest, _call: Call, *, quorum: QuorumMembership) -> object:
    quorum.receive(request)
    return NO_ANSWER
