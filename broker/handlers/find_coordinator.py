"""FindCoordinator: the broker that coordinates a group or a transactional id.

The internal topic behind it is created when a client first asks.

v1: the type of the key: group or transaction (KIP-98)
v3: flexible (KIP-482)
v4: many keys (KIP-699)
v5: TRANSACTION_ABORTABLE is understood (KIP-890)
v6: keys of share groups (KIP-932), which are INVALID_REQUEST here
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.cluster.view import BrokerAddress, ClusterView
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.time_slice import TimeSlice
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP: Final = 0
TRANSACTION: Final = 1
MANY_FROM: Final = 4


@handles(FindCoordinatorRequest, FindCoordinatorResponse)
async def find_coordinator(
    request: FindCoordinatorRequest,
    call: Call,
    *,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    cluster: ClusterView,
) -> FindCoordinatorResponse:
    cluster.check_contact()
    services: dict[int, GroupCoordinator | TransactionCoordinator] = {GROUP: groups, TRANSACTION: transactions}
    service = services.get(request.key_type)
    many = call.version >= MANY_FROM
    keys = request.coordinator_keys if many else [request.key]
    if service is groups and len(keys) == 1:  # an administrator's tool asks for many; a consumer for its own
        groups.recent_lookups.asked(keys[0], call.connection, groups.now_ms())
    if many:
        response, time_slice = FindCoordinatorResponse(), TimeSlice()
        for key in keys:
            response.coordinators.append(await _find(key, service, call, cluster))
            await time_slice.pause()
        return response
    found = await _find(request.key, service, call, cluster)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(
    key: str, service: GroupCoordinator | TransactionCoordinator | None, call: Call, cluster: ClusterView
) -> Coordinator:
    if service is None:
        return _refused(key, ErrorCode.INVALID_REQUEST, "There are no coordinators of this type here.")
    try:
        leader = await service.leader_of(key)
    except Refused as refusal:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal.message)
    address = _address(cluster, call, leader)
    if address is None:
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker that coordinates it is not there.")
    return Coordinator(key=key, node_id=address.node_id, host=address.host, port=address.port)


def _address(cluster: ClusterView, call: Call, node_id: int) -> BrokerAddress | None:
    return next((each for each in cluster.brokers(call.connection.listener) if each.node_id == node_id), None)


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, error_code=code, error_message=message, node_id=-1, port=-1)
