"""Forwarded (key 32001, our own): a client's request that a broker passes on to the controller."""

from __future__ import annotations

from tidemark.protocol.schema import blob, boolean, int16, int64, message, string


@message(key=32001, versions="0", flexible="0+", listeners="controller")
class ForwardedRequest:
    api_key: int = int16()
    api_version: int = int16()
    client_id: str | None = string(nullable="0+", default=None)
    body: bytes = blob()
    # Who asks, and from where. Fields with a tag came later; without them it is anybody.
    principal_type: str = string(tag=0)
    principal_name: str = string(tag=1)
    client_host: str = string(tag=2)
    listener: str = string(tag=3)
    is_own: bool = boolean(tag=4)  # the node itself asks
    token_authenticated: bool = boolean(tag=5)
    is_for_broker: bool = boolean(tag=6)  # for what the node leads or coordinates, be it the controller or not


@message(key=32001, versions="0", flexible="0+")
class ForwardedResponse:
    error_code: int = int16()
    index: int = int64()  # what the controller had applied when it answered
    body: bytes = blob()
