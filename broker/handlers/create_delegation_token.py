"""CreateDelegationToken: a token that others log in by as its owner, for a while (KIP-48).

Whoever logged in may ask for a token of their own; for somebody else's, the right CreateTokens on that user is needed
(KIP-373). Who logged in by a token gets none. The controller makes it; other brokers forward the request to it.

v2: flexible (KIP-482)
v3: tokens for others (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.credentials import TokenImage
from tidemark.broker.metadata.delegation_tokens import check_may_ask, new_token
from tidemark.broker.security.delegation_tokens import OWN, DelegationTokens
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


@handles(CreateDelegationTokenRequest, CreateDelegationTokenResponse, on_controller=True)
async def create_delegation_token(
    request: CreateDelegationTokenRequest,
    call: Call,
    *,
    delegation_tokens: DelegationTokens,
    guard: Guard | None,
) -> CreateDelegationTokenResponse:
    requester: Principal = call.connection.principal
    owner = Principal(request.owner_principal_type or requester.type, request.owner_principal_name or requester.name)
    try:
        check_may_ask(requester)
        _check_may_create_for(owner, requester, call, guard)
        token = await _created(request, requester, owner, delegation_tokens)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        return _answer(owner, requester, CreateDelegationTokenResponse(error_code=refusal.code))
    answer = CreateDelegationTokenResponse(
        issue_timestamp_ms=token.issue_timestamp,
        expiry_timestamp_ms=token.expiry_timestamp,
        max_timestamp_ms=token.max_timestamp,
        token_id=token.token_id,
        hmac=delegation_tokens.hmac_of(token.token_id),
    )
    return _answer(owner, requester, answer)


def _check_may_create_for(owner: Principal, requester: Principal, call: Call, guard: Guard | None) -> None:
    """Without an authorizer everybody may do everything, as in Kafka."""
    if guard is None:
        return
    access = guard.access("CreateDelegationToken", CreateDelegationTokenResponse, call)
    if owner == requester:
        access.tell(OWN, AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner))
    elif not access.may(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        raise Refused(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "Tokens of others need a right of their own.")


async def _created(
    request: CreateDelegationTokenRequest, requester: Principal, owner: Principal, tokens: DelegationTokens
) -> TokenImage:
    tokens.check(requester)
    token = new_token(
        tokens.new_id(),
        owner=owner,
        requester=requester,
        renewers=[Principal(each.principal_type, each.principal_name) for each in request.renewers],
        max_lifetime_ms=request.max_lifetime_ms,
        lifetimes=tokens.lifetimes,
        now_ms=tokens.now_ms(),
    )
    await tokens.create(token)
    return token


def _answer(
    owner: Principal, requester: Principal, answer: CreateDelegationTokenResponse
) -> CreateDelegationTokenResponse:
    answer.principal_type, answer.principal_name = owner.type, owner.name
    answer.token_requester_principal_type, answer.token_requester_principal_name = requester.type, requester.name
    return answer
