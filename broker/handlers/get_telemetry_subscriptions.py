"""GetTelemetrySubscriptions: which of its metrics a client is asked to push, and how often (KIP-714).

Offered only where somebody wants to see what is pushed, as Kafka offers it only with a plugin that takes it.
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.telemetry.service import ACCEPTED, Telemetry
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@handles(GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse)
def get_telemetry_subscriptions(
    request: GetTelemetrySubscriptionsRequest, call: Call, *, telemetry: Telemetry | None
) -> GetTelemetrySubscriptionsResponse:
    if telemetry is None:
        return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        instance_id, wanted = telemetry.subscribe(request.client_instance_id, call)
    except Refused as refusal:
        return GetTelemetrySubscriptionsResponse(error_code=refusal.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=False,  # Prometheus adds nothing up
        requested_metrics=list(wanted.metrics),
    )
