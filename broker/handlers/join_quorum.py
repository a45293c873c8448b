"""JoinQuorum (our own): a node asks to follow the metadata, or says that it has moved. It gets no vote by this.

A node of another cluster is refused with INCONSISTENT_CLUSTER_ID, one whose id another live process has with
DUPLICATE_BROKER_REGISTRATION; who asks again is answered again. A node that does not lead answers NOT_CONTROLLER and
names the one that does, if it knows.

v0: the only one; the directory id came later, as a tagged field
"""

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
        await quorum.add_observer(
            request.node_id,
            host=request.host,
            port=request.port,
            cluster_id=request.cluster_id,
            directory_id=bytes(request.directory_id),
        )
    except Refused as refusal:
        return JoinQuorumResponse(error_code=refusal.code, error_message=refusal.message)
    return _naming_the_leader(quorum, ErrorCode.NONE)


def _naming_the_leader(quorum: QuorumMembership, code: ErrorCode) -> JoinQuorumResponse:
    leader_id = quorum.store.leader_id
    address = None if leader_id is None else quorum.addresses().get(leader_id)
    if leader_id is None or address is None:
        return JoinQuorumResponse(error_code=code)
    return JoinQuorumResponse(error_code=code, leader_id=leader_id, leader_host=address.host, leader_port=address.port)
