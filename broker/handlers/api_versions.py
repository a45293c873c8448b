"""ApiVersions: what is served on this listener, which is what has a handler."""

from __future__ import annotations

import re
from typing import Final

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.api_table import served_on
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.features import SUPPORTED, finalized
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_FROM = 3
# As Kafka 4: librdkafka takes a missing Produce v0 for a broker without compression. Nobody may use versions 0 to 2.
TOLD_FROM: Final = {0: 0}
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, ApiVersionsResponse)
def api_versions(
    request: ApiVersionsRequest, call: Call, *, settings: DynamicConfig, cluster: ClusterView
) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_FROM:
        named = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in named):  # KIP-511
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.connection.client_software = " ".join(named)
    is_controller = call.connection.listener in settings.static.controller_listener_names
    keys = [
        ApiVersion(api_key=key, min_version=TOLD_FROM.get(key, entry.versions.first), max_version=entry.versions.last)
        for key, entry in served_on("controller" if is_controller else "broker").items()
        if not entry.is_private
    ]
    # KIP-584. From transaction.version clients know that they may use transactions version 2 (KIP-890).
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high) for name, (low, high) in SUPPORTED.items()
        ],
        finalized_features_epoch=cluster.metadata_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized(cluster.image).items()
        ],
    )
