"""SaslHandshake: which mechanism a client wants to log in by (KIP-43).

A login goes its own way, before requests are dispatched (`security/sasl/`). What arrives here is a handshake on a
listener without logins, or on a connection whose client has logged in already: a new login on it is refused, unless
logins end here and it was not renewed just now (KIP-368).

v1: tokens come in SaslAuthenticate requests (KIP-152)
"""

from __future__ import annotations

from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


@handles(SaslHandshakeRequest, SaslHandshakeResponse)
def sasl_handshake(_request: SaslHandshakeRequest, _call: Call) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
