from __future__ import annotations

from typing import Any

from token_users import created

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest


async def test_a_token_ends_now_or_later(log_in_as: Any) -> None:
    ann = await log_in_as("ann")
    token = await created(ann)
    later = await ann.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=5_000))
    assert (later.error_code, later.expiry_timestamp_ms < token.expiry_timestamp_ms) == (0, True)
    bob = await log_in_as("bob")
    assert (await bob.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))).error_code == 0
    gone = await ann.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
    assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_nobody_else_ends_it(log_in_as: Any) -> None:
    token = await created(await log_in_as("ann"))
    answer = await (await log_in_as("eve")).ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
