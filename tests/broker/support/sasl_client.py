"""Logging in, for tests that speak to a broker by its own messages."""

from __future__ import annotations

from typing import Any

from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tidemark.protocol.sasl.client import Login, client_mechanism


async def log_in(client: Any, user: str, password: str, mechanism: str = "SCRAM-SHA-512", **more: Any) -> Any:
    """The broker's last answer."""
    login = Login(mechanism=mechanism, user=user, password=password, **more)
    exchange = client_mechanism(login, new_nonce=lambda: "nonce")
    answer = await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    if answer.error_code:
        return answer
    token = exchange.respond(b"")
    while token is not None:
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code:
            return answer
        token = exchange.respond(bytes(answer.auth_bytes))
    return answer
