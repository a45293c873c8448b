"""ApiVersions: the APIs and versions that this listener serves, and the cluster's features.

A version that we do not know is answered in the form of version 0 with UNSUPPORTED_VERSION and our range of versions of
this API (KIP-511), and so the answer never has a flexible header.

v3: name and version of the client's software (KIP-511); features (KIP-584); flexible (KIP-482)
v4: features whose minimum is 0 can be listed (KAFKA-17011)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    from tidemark.broker.telemetry.service import Telemetry

SOFTWARE_FROM: Final = 3
MINIMUM_ZERO_FROM: Final = 4  # Java clients 3.3 to 3.7 do not connect when the minimum is 0
# As Kafka 4: librdkafka takes a missing Produce v0 for a broker without compression.
# Requests of versions 0 to 2 are refused all the same.
TOLD_FROM: Final = {0: 0}
TELEMETRY_KEYS: Final = (71, 72)  # KIP-714: offered only where somebody wants to see what is pushed
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, ApiVersionsResponse)
def api_versions(
    request: ApiVersionsRequest,
    call: Call,
    *,
    settings: DynamicConfig,
    cluster: ClusterView,
    telemetry: Telemetry | None,
) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_FROM:
        named = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in named):  # KIP-511
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.connection.client_software = " ".join(named)
    takes_telemetry = telemetry is not None and telemetry.is_wanted
    is_controller = call.connection.listener in settings.static.controller_listener_names
    keys = [
        ApiVersion(api_key=key, min_version=TOLD_FROM.get(key, entry.versions.first), max_version=entry.versions.last)
        for key, entry in served_on("controller" if is_controller else "broker").items()
        if not entry.is_private and (takes_telemetry or key not in TELEMETRY_KEYS)
    ]
    # KIP-584. From transaction.version clients know that they may use transactions version 2 (KIP-890).
    return ApiVersionsResponse(
        api_keys=keys,
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED.items()
            if low > 0 or call.version >= MINIMUM_ZERO_FROM
        ],
        finalized_features_epoch=cluster.metadata_offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized(cluster.image).items()
            if level > 0  # 0 is what a feature that is not there has
        ],
    )
