"""AddRaftVoter: a node that follows the metadata gets a vote (KIP-853).

The answer comes when the new voter has caught up and the change is committed, or the time given for it is over.

v1: AckWhenCommitted (KIP-1186)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.broker.cluster.voter_changes import quorum_to_change
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.peers.peers import Address
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse

if TYPE_CHECKING:
    from tidemark.broker.cluster.quorum_membership import QuorumMembership


VOTER_SECONDS_DEFAULT: Final = 30.0


@handles(AddRaftVoterRequest, AddRaftVoterResponse, on_controller=True)
async def add_raft_voter(
    request: AddRaftVoterRequest, _call: Call, *, store: MetadataStore, quorum: QuorumMembership | None
) -> AddRaftVoterResponse:
    try:
        changed = quorum_to_change(store, quorum, cluster_id=request.cluster_id)
        address = next((Address(each.host, each.port) for each in request.listeners), None)
        seconds = request.timeout_ms / 1000 if request.timeout_ms > 0 else VOTER_SECONDS_DEFAULT
        await changed.add_voter(request.voter_id, address=address, seconds_max=seconds)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return AddRaftVoterResponse(error_code=refusal.code, error_message=refusal.message)
    return AddRaftVoterResponse()
