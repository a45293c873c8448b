"""ListConfigResources: the names of everything that can have settings of its own.

v0: it was ListClientMetricsResources then (KIP-714), and answers only those
v1: any types of resources can be asked for; none named means all (KIP-1142)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

BROKER_LOGGER_RESOURCE: Final = 8
LISTED_RESOURCES: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE)


@handles(ListConfigResourcesRequest, ListConfigResourcesResponse)
def list_config_resources(
    request: ListConfigResourcesRequest, call: Call, *, cluster: ClusterView
) -> ListConfigResourcesResponse:
    if call.version == 0:  # it was ListClientMetricsResources then, and there are none
        return ListConfigResourcesResponse()
    image = cluster.image
    wanted = set(request.resource_types) or set(LISTED_RESOURCES)
    if wanted - {*LISTED_RESOURCES, BROKER_LOGGER_RESOURCE, CLIENT_METRICS_RESOURCE}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names: list[tuple[int, str]] = []
    if TOPIC_RESOURCE in wanted:
        names += [(TOPIC_RESOURCE, name) for name in image.topics]
    if BROKER_RESOURCE in wanted:
        names += [(BROKER_RESOURCE, str(broker_id)) for broker_id in image.brokers]
    if GROUP_RESOURCE in wanted:
        names += [(kind, name) for kind, name in image.configs if kind == GROUP_RESOURCE]
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(resource_type=kind, resource_name=name) for kind, name in names]
    )
