"""SaslHandshake (key 17): which SASL mechanism the client wants to log in by (KIP-43)."""

from __future__ import annotations

from tidemark.protocol.schema import array, int16, message, string


@message(key=17, versions="0-1", flexible="", listeners="broker controller")
class SaslHandshakeRequest:
    mechanism: str = string()


@message(key=17, versions="0-1", flexible="")
class SaslHandshakeResponse:
    error_code: int = int16()
    mechanisms: list[str] = array("string")
