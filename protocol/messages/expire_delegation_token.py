"""ExpireDelegationToken (key 40): let a token end sooner, or now (KIP-48)."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int16, int32, int64, message


@message(key=40, versions="1-2", flexible="2+", listeners="broker controller")
class ExpireDelegationTokenRequest:
    hmac: bytes = blob()
    expiry_time_period_ms: int = int64()


@message(key=40, versions="1-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
