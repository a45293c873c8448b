"""ApiVersions: what is served here, which is what has a handler."""

from __future__ import annotations

import re

from broker.registry import Call, handles
from broker.served import SERVED
from broker.transactions.features import TRANSACTION_VERSION, TRANSACTION_VERSION_MAX
from protocol.errors import ErrorCode
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_FROM = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, ApiVersionsResponse)
def api_versions(request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= SOFTWARE_FROM:
        named = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in named):  # KIP-511
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        call.connection.client_software = " ".join(named)
    keys = [
        ApiVersion(api_key=key, min_version=served.versions.first, max_version=served.versions.last)
        for key, served in SERVED.items()
    ]
    # KIP-584. From transaction.version clients know that they may use transactions version 2 (KIP-890).
    supported = SupportedFeatureKey(name=TRANSACTION_VERSION, max_version=TRANSACTION_VERSION_MAX)
    finalized = FinalizedFeatureKey(
        name=TRANSACTION_VERSION, min_version_level=TRANSACTION_VERSION_MAX, max_version_level=TRANSACTION_VERSION_MAX
    )
    return ApiVersionsResponse(
        api_keys=keys, supported_features=[supported], finalized_features_epoch=1, finalized_features=[finalized]
    )
