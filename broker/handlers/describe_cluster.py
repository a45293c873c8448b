"""DescribeCluster: who is in the cluster. Only brokers are listed: controllers have no addresses of their own here."""

from __future__ import annotations

from typing import Final

from broker.authorized import CLUSTER_OPERATIONS
from broker.cluster import Cluster
from broker.registry import Call, handles
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


@handles(DescribeClusterRequest, DescribeClusterResponse)
def describe_cluster(request: DescribeClusterRequest, call: Call, *, cluster: Cluster) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        known = request.endpoint_type == CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker listener; only broker endpoints can be asked for.",
            endpoint_type=BROKERS,
        )
    response = DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in cluster.brokers(call.connection.listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
