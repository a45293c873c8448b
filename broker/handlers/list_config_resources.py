"""ListConfigResources: the names of everything that can have settings of its own.

v0: it was ListClientMetricsResources then (KIP-714), and answers only those
v1: any types of resources can be asked for; none named means all (KIP-1142)
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, gathered
from tidemark.broker.metadata.image import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Image,
)
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

NAMED_BY_SETTINGS: Final = (GROUP_RESOURCE, CLIENT_METRICS_RESOURCE)
LISTED_RESOURCES: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, BROKER_LOGGER_RESOURCE, *NAMED_BY_SETTINGS)


@handles(ListConfigResourcesRequest, ListConfigResourcesResponse)
def list_config_resources(
    request: ListConfigResourcesRequest, call: Call, *, cluster: ClusterView
) -> Job[ListConfigResourcesResponse]:
    wanted = set(request.resource_types) or set(LISTED_RESOURCES)
    if call.version == 0:  # it was ListClientMetricsResources then
        wanted = {CLIENT_METRICS_RESOURCE}
    if wanted - set(LISTED_RESOURCES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(config_resources=(yield from gathered(_resources(cluster.image, wanted))))


def _resources(image: Image, wanted: Set[int]) -> Iterator[ConfigResource]:
    if TOPIC_RESOURCE in wanted:
        for name in image.topics:
            yield ConfigResource(resource_type=TOPIC_RESOURCE, resource_name=name)
    for kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        if kind in wanted:
            for broker_id in image.brokers:
                yield ConfigResource(resource_type=kind, resource_name=str(broker_id))
    for kind, name in image.configs:
        if kind in NAMED_BY_SETTINGS and kind in wanted:
            yield ConfigResource(resource_type=kind, resource_name=name)
