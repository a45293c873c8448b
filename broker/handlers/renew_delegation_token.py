"""RenewDelegationToken: let a token live longer, up to its maximum (KIP-48).

Its owner and its renewers may. The controller decides; other brokers forward the request to it.

v2: flexible (KIP-482)
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.delegation_tokens import renewed
from tidemark.broker.security.delegation_tokens import DelegationTokens
from tidemark.broker.security.guard import Guard
from tidemark.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RenewDelegationTokenRequest, RenewDelegationTokenResponse, on_controller=True)
async def renew_delegation_token(
    request: RenewDelegationTokenRequest, call: Call, *, delegation_tokens: DelegationTokens, guard: Guard | None
) -> RenewDelegationTokenResponse:
    change = partial(renewed, period_ms=request.renew_period_ms, lifetimes=delegation_tokens.lifetimes)
    return await delegation_tokens.change_expiry(
        change, bytes(request.hmac), call, RenewDelegationTokenResponse, guard=guard
    )
