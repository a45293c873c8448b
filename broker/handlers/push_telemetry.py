"""PushTelemetry: a client's metrics, for /metrics and for who they are forwarded to (KIP-714).

Refused: a push that comes too soon (THROTTLING_QUOTA_EXCEEDED), for a subscription that has changed
(UNKNOWN_SUBSCRIPTION_ID), that is too large (TELEMETRY_TOO_LARGE) or follows the last one (INVALID_REQUEST). There is
one version.
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.telemetry.service import Telemetry
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@handles(PushTelemetryRequest, PushTelemetryResponse)
async def push_telemetry(
    request: PushTelemetryRequest, call: Call, *, telemetry: Telemetry | None
) -> PushTelemetryResponse:
    if telemetry is None:
        return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        await telemetry.push(
            request.client_instance_id,
            call,
            subscription_id=request.subscription_id,
            codec=request.compression_type,
            data=bytes(request.metrics),
            terminating=request.terminating,
        )
    except Refused as refusal:
        return PushTelemetryResponse(error_code=refusal.code)
    return PushTelemetryResponse()
