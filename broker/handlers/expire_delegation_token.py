"""ExpireDelegationToken: let a token end after a period, or at once if that is negative (KIP-48).

Its owner and its renewers may. The controller decides; other brokers forward the request to it.

v2: flexible (KIP-482)
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.credentials import TokenImage
from tidemark.broker.metadata.delegation_tokens import expired
from tidemark.broker.security.delegation_tokens import DelegationTokens, tell_owner_mismatch
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, on_controller=True)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, call: Call, *, delegation_tokens: DelegationTokens, guard: Guard | None
) -> ExpireDelegationTokenResponse:
    principal, tokens = call.connection.principal, delegation_tokens
    now_ms = tokens.now_ms()
    access = None if guard is None else guard.access("ExpireDelegationToken", ExpireDelegationTokenResponse, call)

    def change(token: TokenImage | None) -> TokenImage | None:
        tell_owner_mismatch(access, token, principal)
        return expired(token, principal, period_ms=request.expiry_time_period_ms, now_ms=now_ms)

    try:
        ends_at_ms = await tokens.change_expiry(principal, bytes(request.hmac), change, now_ms=now_ms)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return ExpireDelegationTokenResponse(error_code=refusal.code)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=ends_at_ms)
