"""ApiVersions: what is served here, which is what has a handler."""

from __future__ import annotations

import re

from broker.registry import ROUTES, Call, handles
from protocol.errors import ErrorCode
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

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
        ApiVersion(api_key=key, min_version=route.advertised.first, max_version=route.advertised.last)
        for key, route in sorted(ROUTES.items())
    ]
    return ApiVersionsResponse(api_keys=keys)
