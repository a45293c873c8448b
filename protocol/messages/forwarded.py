"""Forwarded (key 32001, our own): a client's request that a broker passes on to the controller."""

from __future__ import annotations

from tidemark.protocol.schema import blob, int16, int64, message, string


@message(key=32001, versions="0", flexible="0+", listeners="controller")
class ForwardedRequest:
    api_key: int = int16()
    api_version: int = int16()
    client_id: str | None = string(nullable="0+", default=None)
    body: bytes = blob()


@message(key=32001, versions="0", flexible="0+")
class ForwardedResponse:
    error_code: int = int16()
    index: int = int64()  # what the controller had applied when it answered
    body: bytes = blob()
