"""PushTelemetry (key 72): a client's metrics, as OpenTelemetry's MetricsData (KIP-714)."""

from __future__ import annotations

from tidemark.protocol.schema import blob, boolean, int8, int16, int32, message, uuid


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = blob()


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
