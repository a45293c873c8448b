"""Delegation tokens from one end to the other: made, shown, used, renewed, ended."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from sasl_client import log_in
from token_users import SECURE, client_of

from tidemark.broker.metadata import delegation_tokens
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from tidemark.protocol.messages.metadata import MetadataRequest


async def by_token(node: Any, connect: Any, created: Any, mechanism: str = "SCRAM-SHA-256") -> tuple[Any, Any]:
    client = await connect(node)
    password = base64.b64encode(created.hmac).decode()
    return client, await log_in(client, created.token_id, password, mechanism, tokenauth=True)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_token_is_logged_in_by_until_it_ends(start_node: Any, connect: Any, mechanism: str) -> None:
    node = await start_node(**SECURE)
    ann = await client_of(node, connect, "ann")
    created = await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=60_000))
    assert (created.error_code, created.principal_name, created.token_requester_principal_name) == (0, "ann", "ann")
    assert created.max_timestamp_ms == created.expiry_timestamp_ms == created.issue_timestamp_ms + 60_000
    for _ in range(2):  # the second time its keys are known
        client, answer = await by_token(node, connect, created, mechanism)
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime_ms <= 60_000
        assert (await client.ask(MetadataRequest(topics=[]))).brokers
    again = await client.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert again.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_a_token_is_no_user_and_its_password_no_other(start_node: Any, connect: Any) -> None:
    node = await start_node(**SECURE)
    created = await (await client_of(node, connect, "ann")).ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    password = base64.b64encode(created.hmac).decode()
    for token_id, secret, tokenauth in (
        (created.token_id, password, False),
        (created.token_id, "guessed", True),
        ("nothing", password, True),
    ):
        answer = await log_in(await connect(node), token_id, secret, tokenauth=tokenauth)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_who_gets_no_token(start_node: Any, connect: Any) -> None:
    node = await start_node(**{**SECURE, "delegation_token_secret_key": ""})
    ann = await client_of(node, connect, "ann")
    answer = await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_anonymous_clients_get_no_token(client: Any) -> None:
    answer = await client.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_renewers_are_users(start_node: Any, connect: Any) -> None:
    ann = await client_of(await start_node(**SECURE), connect, "ann")
    renewer = CreatableRenewers(principal_type="Group", principal_name="x")
    answer = await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1, renewers=[renewer]))
    assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_nobody_makes_the_cluster_remember_as_much_as_they_like(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No right is needed for a token: anybody who can log in could fill the memory of every node with them."""
    monkeypatch.setattr(delegation_tokens, "TOKENS_MAX", 2)
    node = await start_node(**SECURE)
    ann = await client_of(node, connect, "ann")
    many = [CreatableRenewers(principal_type="User", principal_name=f"u{number}") for number in range(101)]
    long = [CreatableRenewers(principal_type="User", principal_name="u" * 1_001)]
    for renewers in (many, long):
        answer = await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1, renewers=renewers))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    codes = [(await ann.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))).error_code for _ in range(3)]
    assert codes == [0, 0, ErrorCode.POLICY_VIOLATION]
    bob = await client_of(node, connect, "bob")
    assert (await bob.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))).error_code == 0
