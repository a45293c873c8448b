"""RaftMessage (our own): a message of the metadata quorum, one way.

There is no answer: what is to be said to it goes as another such message, over the receiver's own link. What comes from
another cluster, or from a node that is no member, is dropped and logged.

v0: the only one
"""

from __future__ import annotations

from tidemark.broker.cluster.quorum_membership import QuorumMembership
from tidemark.broker.core.registry import NO_ANSWER, Call, handles
from tidemark.protocol.messages.raft_message import RaftMessageRequest, RaftMessageResponse


@handles(RaftMessageRequest, RaftMessageResponse)
def raft_message(request: RaftMessageRequest, _call: Call, *, quorum: QuorumMembership) -> object:
    quorum.receive(request)
    return NO_ANSWER
