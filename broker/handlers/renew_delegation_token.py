"""RenewDelegationToken: let a token live longer, up to its maximum (KIP-48).

Its owner and its renewers may. The controller decides; other brokers forward the request to it.

v2: flexible (KIP-482)
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.credentials import TokenImage
from tidemark.broker.metadata.delegation_tokens import renewed
from tidemark.broker.security.delegation_tokens import DelegationTokens, tell_owner_mismatch
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RenewDelegationTokenRequest, RenewDelegationTokenResponse, on_controller=True)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, call: Call, *, delegation_tokens: DelegationTokens, guard: Guard | None
) -> RenewDelegationTokenResponse:
    principal, tokens = call.connection.principal, delegation_tokens
    now_ms = tokens.now_ms()
    access = None if guard is None else guard.access("RenewDelegationToken", RenewDelegationTokenResponse, call)

    def change(token: TokenImage | None) -> TokenImage | None:
        tell_owner_mismatch(access, token, principal)
        return renewed(token, principal, period_ms=request.renew_period_ms, lifetimes=tokens.lifetimes, now_ms=now_ms)

    try:
        ends_at_ms = await tokens.change_expiry(principal, bytes(request.hmac), change, now_ms=now_ms)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return RenewDelegationTokenResponse(error_code=refusal.code)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=ends_at_ms)
