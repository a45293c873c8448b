"""JoinQuorum (our own): a node asks to follow the metadata. A node that does not lead names the one that does."""

from __future__ import annotations

from tidemark.broker.cluster.quorum_membership import QuorumMembership
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_quorum import JoinQuorumRequest, JoinQuorumResponse


@handles(JoinQuorumRequest, JoinQuorumResponse)
async def join_quorum(request: JoinQuorumRequest, _call: Call, *, quorum: QuorumMembership) -> JoinQuorumResponse:
    if not quorum.store.is_controller:
        return _naming_the_leader(quorum, ErrorCode.NOT_CONTROLLER)
    try:
        await quorum.add_observer(request.node_id, host=request.host, port=request.port, cluster_id=request.cluster_id)
    except Refused as refusal:
        return JoinQuorumResponse(error_code=refusal.code, error_message=refusal.message)
    return _naming_the_leader(quorum, ErrorCode.NONE)


def _naming_the_leader(quorum: QuorumMembership, code: ErrorCode) -> JoinQuorumResponse:
    leader_id = quorum.store.leader_id
    address = None if leader_id is None else quorum.addresses().get(leader_id)
    if leader_id is None or address is None:
        return JoinQuorumResponse(error_code=code)
    return JoinQuorumResponse(error_code=code, leader_id=leader_id, leader_host=address.host, leader_port=address.port)
