"""DescribeCluster: the brokers on a listener for clients, the controllers on a controller listener (KIP-700).

v1: the kind of endpoints asked for, which must fit the listener (KIP-919)
v2: fenced brokers, too, if asked for (KIP-1073)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.acl_operations import CLUSTER_OPERATIONS
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from tidemark.broker.cluster.quorum_membership import QuorumMembership

BROKERS: Final = 1
CONTROLLERS: Final = 2


KINDS: Final = {BROKERS: "broker", CONTROLLERS: "controller"}


@handles(DescribeClusterRequest, DescribeClusterResponse)
def describe_cluster(
    request: DescribeClusterRequest,
    call: Call,
    *,
    cluster: ClusterView,
    settings: DynamicConfig,
    quorum: QuorumMembership | None,
) -> DescribeClusterResponse:
    is_own = call.connection.listener in settings.static.controller_listener_names
    kind = CONTROLLERS if is_own else BROKERS
    if request.endpoint_type != kind:
        known = request.endpoint_type in KINDS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"This is a {KINDS[kind]} listener; only {KINDS[kind]} endpoints can be asked for.",
            endpoint_type=kind,
        )
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        endpoint_type=kind,
        brokers=_controllers(quorum) if is_own and quorum is not None else _brokers(request, call, cluster),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _brokers(request: DescribeClusterRequest, call: Call, cluster: ClusterView) -> list[DescribeClusterBroker]:
    brokers = cluster.image.brokers
    return [
        DescribeClusterBroker(
            broker_id=each.node_id,
            host=each.host,
            port=each.port,
            rack=each.rack,
            is_fenced=brokers[each.node_id].fenced,
        )
        for each in cluster.brokers(call.connection.listener, fenced=request.include_fenced_brokers)
    ]


def _controllers(quorum: QuorumMembership) -> list[DescribeClusterBroker]:
    voters = quorum.store.driver.node.configuration.voters
    return [
        DescribeClusterBroker(broker_id=node_id, host=address.host, port=address.port)
        for node_id, address in sorted(quorum.addresses().items())
        if node_id in voters
    ]
