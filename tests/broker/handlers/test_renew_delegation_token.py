from __future__ import annotations

from typing import Any

from token_users import created

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest


async def test_the_owner_and_renewers_let_it_live_longer_up_to_its_maximum(log_in_as: Any) -> None:
    ann = await log_in_as("ann")
    token = await created(ann)
    for client in (ann, await log_in_as("bob")):
        answer = await client.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1 << 50))
        assert (answer.error_code, answer.expiry_timestamp_ms) == (0, token.max_timestamp_ms)


async def test_nobody_else_renews_it(log_in_as: Any) -> None:
    token = await created(await log_in_as("ann"))
    answer = await (await log_in_as("eve")).ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_there_is_no_such_token(log_in_as: Any) -> None:
    answer = await (await log_in_as("ann")).ask(RenewDelegationTokenRequest(hmac=b"guessed", renew_period_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_a_token_that_has_expired_stays_so(log_in_as: Any) -> None:
    ann = await log_in_as("ann")
    token = await created(ann, max_lifetime_ms=1)
    answer = await ann.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1))
    while answer.error_code == ErrorCode.NONE:
        answer = await ann.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
