"""Users of a broker that gives out delegation tokens."""

from __future__ import annotations

from typing import Any

from sasl_client import log_in

from tidemark.protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest

SECURE = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl_plain_users": '{"ann": "a", "bob": "b", "eve": "e"}',
    "delegation_token_secret_key": "only-nodes-know-it",
    "connection_failed_authentication_delay_ms": 0,
}
BOB = CreatableRenewers(principal_type="User", principal_name="bob")


async def client_of(node: Any, connect: Any, user: str) -> Any:
    client = await connect(node)
    assert (await log_in(client, user, user[0], "PLAIN")).error_code == 0
    return client


async def created(client: Any, max_lifetime_ms: int = -1) -> Any:
    """A token that Bob may renew."""
    return await client.ask(CreateDelegationTokenRequest(max_lifetime_ms=max_lifetime_ms, renewers=[BOB]))
