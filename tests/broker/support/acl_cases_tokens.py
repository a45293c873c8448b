"""What is asked for about delegation tokens: one's own, and those of others, who need a right (KIP-373)."""

from __future__ import annotations

from typing import Any

from acl_table import DESCRIBE, TOKEN_OWNER, Right, World, add

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.protocol.messages import (
    create_delegation_token,
    describe_delegation_token,
    expire_delegation_token,
    renew_delegation_token,
)

OTHER_OWNER = "zoe"  # whom tokens are made for, so that those that are described stay the same


def on_user(operation: AclOperation, name: str) -> Right:
    return operation, ResourceType.USER, f"User:{name}"


def create_request(owner: str | None = None) -> Any:
    return create_delegation_token.CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else "User", owner_principal_name=owner, max_lifetime_ms=-1
    )


def describe_request() -> Any:
    owner = describe_delegation_token.DescribeDelegationTokenOwner(principal_type="User", principal_name=TOKEN_OWNER)
    return describe_delegation_token.DescribeDelegationTokenRequest(owners=[owner])


def _renew(world: World) -> Any:
    return renew_delegation_token.RenewDelegationTokenRequest(hmac=world.token_hmac, renew_period_ms=-1)


def _expire(world: World) -> Any:
    return expire_delegation_token.ExpireDelegationTokenRequest(hmac=world.token_hmac, expiry_time_period_ms=-1)


add("CreateDelegationToken", 3, lambda _: create_request())
add(
    "CreateDelegationToken for somebody else",
    3,
    lambda _: create_request(OTHER_OWNER),
    on_user(AclOperation.CREATE_TOKENS, OTHER_OWNER),
)
add("DescribeDelegationToken", 3, lambda _: describe_request(), on_user(AclOperation.DESCRIBE_TOKENS, TOKEN_OWNER))
add(
    "DescribeDelegationToken by a right on tokens",
    3,
    lambda _: describe_request(),
    (DESCRIBE, ResourceType.DELEGATION_TOKEN, "no-such-token"),
)
add("RenewDelegationToken of somebody else", 2, _renew)
add("ExpireDelegationToken of somebody else", 2, _expire)
