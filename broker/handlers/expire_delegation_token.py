"""ExpireDelegationToken: let a token end after a period, or at once if that is negative (KIP-48).

Its owner and its renewers may. The controller decides; other brokers forward the request to it.

v2: flexible (KIP-482)
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.delegation_tokens import expired
from tidemark.broker.security.delegation_tokens import DelegationTokens
from tidemark.broker.security.guard import Guard
from tidemark.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, on_controller=True)
async def expire_delegation_token(
    request: ExpireDelegationTokenRequest, call: Call, *, delegation_tokens: DelegationTokens, guard: Guard | None
) -> ExpireDelegationTokenResponse:
    change = partial(expired, period_ms=request.expiry_time_period_ms)
    return await delegation_tokens.change_expiry(
        change, bytes(request.hmac), call, ExpireDelegationTokenResponse, guard=guard
    )
