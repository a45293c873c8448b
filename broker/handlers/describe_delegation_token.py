"""DescribeDelegationToken: the tokens that the client may see, of all owners or of some (KIP-48).

Those that it owns, asked for or may renew; of others, where it has the right to describe the token, or the owner's
tokens (KIP-373).

v2: flexible (KIP-482)
v3: who asked for a token (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.credentials import TokenImage
from tidemark.broker.security.access import Access
from tidemark.broker.security.delegation_tokens import DelegationTokens
from tidemark.broker.security.guard import Guard
from tidemark.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@handles(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse)
def describe_delegation_token(
    request: DescribeDelegationTokenRequest,
    call: Call,
    *,
    cluster: ClusterView,
    delegation_tokens: DelegationTokens,
    guard: Guard | None,
) -> Job[DescribeDelegationTokenResponse]:
    try:
        delegation_tokens.check(call.connection.principal)
    except Refused as refusal:
        return DescribeDelegationTokenResponse(error_code=refusal.code)
    owners: set[Principal] = set()
    for each in request.owners or ():
        owners.add(Principal(each.principal_type, each.principal_name))
        yield
    access = None if guard is None else guard.access("DescribeDelegationToken", DescribeDelegationTokenResponse, call)
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, delegation_tokens.hmac_of(token.token_id))
            for token in cluster.image.credentials.tokens.values()
            if (request.owners is None or token.owner in owners) and _may_see(token, call.connection.principal, access)
        ]
    )


def _may_see(token: TokenImage, client: Principal, access: Access | None) -> bool:
    """Without an authorizer everybody may do everything, as in Kafka."""
    return (
        token.is_of(client)
        or access is None
        or access.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, quietly=True)
        or access.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), quietly=True)
    )


def _described(token: TokenImage, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
            for each in token.renewers
        ],
    )
