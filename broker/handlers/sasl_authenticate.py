"""SaslAuthenticate: a step of a login, where none is under way (KIP-152).

Those of a login are answered before requests are dispatched (`security/sasl/`).

v1: how long the login lasts (KIP-368)
v2: flexible (KIP-482)
"""

from __future__ import annotations

from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


@handles(SaslAuthenticateRequest, SaslAuthenticateResponse)
def sasl_authenticate(_request: SaslAuthenticateRequest, _call: Call) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
