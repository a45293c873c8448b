"""GetTelemetrySubscriptions (key 71): which metrics a client is asked to push, and how often (KIP-714)."""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, int16, int32, message, uuid


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = uuid()  # zero: the broker is to choose one


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array("int8")
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array("string")
