"""SaslAuthenticate (key 36): one step of a SASL exchange, either way (KIP-152)."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int16, int64, message, string


@message(key=36, versions="0-2", flexible="2+", listeners="broker controller")
class SaslAuthenticateRequest:
    auth_bytes: bytes = blob()


@message(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = blob()
    session_lifetime_ms: int = int64("1+")
