from __future__ import annotations

from typing import Any

from token_users import created

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)


async def test_tokens_are_shown_of_all_owners_or_of_some(log_in_as: Any) -> None:
    ann = await log_in_as("ann")
    token = await created(ann)
    await created(await log_in_as("bob"))
    everyone = await ann.ask(DescribeDelegationTokenRequest(owners=None))
    assert sorted(each.principal_name for each in everyone.tokens) == ["ann", "bob"]  # without an authorizer
    owner = DescribeDelegationTokenOwner(principal_type="User", principal_name="ann")
    (shown,) = (await ann.ask(DescribeDelegationTokenRequest(owners=[owner]))).tokens
    assert (shown.token_id, shown.hmac, shown.renewers[0].principal_name) == (token.token_id, token.hmac, "bob")
    assert (await ann.ask(DescribeDelegationTokenRequest(owners=[]))).tokens == []


async def test_anonymous_clients_see_none(client: Any) -> None:
    answer = await client.ask(DescribeDelegationTokenRequest(owners=None))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
