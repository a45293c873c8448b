"""RemoveRaftVoter: a node loses its vote on the metadata; it goes on following it (KIP-853).

The controller decides, and answers when the change is committed; other brokers forward the request to it. There is one
version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.broker.cluster.voter_changes import quorum_to_change
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

if TYPE_CHECKING:
    from tidemark.broker.cluster.quorum_membership import QuorumMembership


@handles(RemoveRaftVoterRequest, RemoveRaftVoterResponse, on_controller=True)
async def remove_raft_voter(
    request: RemoveRaftVoterRequest, _call: Call, *, store: MetadataStore, quorum: QuorumMembership | None
) -> RemoveRaftVoterResponse:
    try:
        changed = quorum_to_change(store, quorum, cluster_id=request.cluster_id)
        await changed.remove_voter(request.voter_id, directory_id=bytes(request.voter_directory_id))
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return RemoveRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
    return RemoveRaftVoterResponse()
