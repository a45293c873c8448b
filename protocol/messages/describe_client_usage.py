"""DescribeClientUsage (key 32010, our own): what each client uses of one broker, for `tidemark quotas top`."""

from __future__ import annotations

from tidemark.protocol.schema import array, float64, int16, int32, int64, message, string, struct


@message(key=32010, versions="0", flexible="0+")
class DescribeClientUsageRequest:
    pass


@struct
class ClientUsage:
    """Sums since the client is counted: two answers make a rate."""

    user: str = string()
    client_id: str = string()
    produced_bytes: int = int64()
    fetched_bytes: int = int64()
    request_seconds: float = float64()
    throttled_requests: int = int64()
    throttle_seconds: float = float64()


@message(key=32010, versions="0", flexible="0+")
class DescribeClientUsageResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    at_seconds: float = float64()  # by the broker's clock, which only grows
    clients: list[ClientUsage] = array(ClientUsage)
