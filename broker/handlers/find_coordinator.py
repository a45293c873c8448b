"""FindCoordinator: which broker looks after a group. The offsets topic is created when somebody first asks.

Up to version 3 one key is asked for, from 4 many. Of the coordinators that Kafka has we have the one for groups: who
asks for that of a transaction is told that there is none at the moment.
"""

from __future__ import annotations

from typing import Final

from broker.cluster import BrokerAddress, Cluster
from broker.errors import Refused
from broker.groups.service import Groups
from broker.registry import Call, handles
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
MANY_FROM: Final = 4


@handles(FindCoordinatorRequest, FindCoordinatorResponse)
async def find_coordinator(
    request: FindCoordinatorRequest, call: Call, *, groups: Groups, cluster: Cluster
) -> FindCoordinatorResponse:
    if call.version >= MANY_FROM:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[await _find(key, request.key_type, call, groups, cluster) for key in keys]
        )
    found = await _find(request.key, request.key_type, call, groups, cluster)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(key: str, key_type: int, call: Call, groups: Groups, cluster: Cluster) -> Coordinator:
    if key_type == TRANSACTION:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "Transactions are not served yet.")
    if key_type != GROUP:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"There are no coordinators of type {key_type} here.")
    try:
        leader = await groups.leader_of(key)
    except Refused as refusal:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal.message)
    address = _address(cluster, call, leader)
    if address is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker that coordinates it is not there.")
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port)


def _address(cluster: Cluster, call: Call, node_id: int) -> BrokerAddress | None:
    return next((each for each in cluster.brokers(call.connection.listener) if each.node_id == node_id), None)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, error_code=code, error_message=message, node_id=-1, port=-1)
