"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-500)."""

from __future__ import annotations

from tidemark.protocol.schema import int16, int32, message, string


@message(key=64, versions="0", flexible="0+", listeners="broker controller")
class UnregisterBrokerRequest:
    broker_id: int = int32()


@message(key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
