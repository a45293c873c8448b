"""RenewDelegationToken (key 39): let a token live longer (KIP-48)."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int16, int32, int64, message


@message(key=39, versions="1-2", flexible="2+", listeners="broker controller")
class RenewDelegationTokenRequest:
    hmac: bytes = blob()
    renew_period_ms: int = int64()


@message(key=39, versions="1-2", flexible="2+")
class RenewDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
