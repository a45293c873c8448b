"""The client's half of a SASL login, without a socket: nodes use it towards each other, and the command line.

A mechanism answers challenges: `respond(b"")` is the first token, and each challenge of the server yields the next;
None means that there is nothing more to say. SCRAM's `respond` takes milliseconds once, when it derives its keys.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from tidemark.protocol.sasl import scram

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"


class ClientMechanism(Protocol):
    name: str

    def respond(self, challenge: bytes) -> bytes | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who logs in, and how. Its `repr` shows no secret."""

    mechanism: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: Callable[[], str] | None = field(default=None, repr=False)  # OAUTHBEARER: a fresh one for each login
    tokenauth: bool = False  # SCRAM: the user is a delegation token's id, the password its HMAC


class LoginRefused(Exception):
    """The server did not let us in, or is not who it says. The text holds no secret."""


def client_mechanism(login: Login, *, new_nonce: Callable[[], str]) -> ClientMechanism:
    if login.mechanism in scram.HASHES:
        return ScramClient(login, nonce=new_nonce())
    if login.mechanism == PLAIN:
        return PlainClient(login)
    if login.mechanism == OAUTHBEARER and login.token is not None:
        return OAuthBearerClient(login.token)
    raise LoginRefused(f"there is no way here to log in by {login.mechanism}")


class PlainClient:
    name = PLAIN

    def __init__(self, login: Login) -> None:
        self._token = f"\0{login.user}\0{login.password}".encode()
        self._sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if self._sent:
            return None
        self._sent = True
        return self._token


class OAuthBearerClient:
    """RFC 7628."""

    name = OAUTHBEARER

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token
        self._sent = False

    def respond(self, challenge: bytes) -> bytes | None:
        if not self._sent:
            self._sent = True
            return f"n,,\x01auth=Bearer {self._token()}\x01\x01".encode()
        return b"\x01" if challenge else None  # a challenge is the server's complaint: it ends with our acknowledgement


class ScramClient:
    def __init__(self, login: Login, *, nonce: str) -> None:
        self.name = login.mechanism
        self._password = login.password
        extensions = f"{scram.TOKEN_AUTH}=true" if login.tokenauth else ""
        self._bare = scram.client_first_bare(login.user, nonce, extensions=extensions)
        self._nonce = nonce
        self._step: Callable[[bytes], bytes | None] = self._first
        self._server_signature = b""

    def respond(self, challenge: bytes) -> bytes | None:
        try:
            return self._step(challenge)
        except scram.ScramError as error:
            raise LoginRefused(f"{self.name}: {error}") from error

    def _first(self, _challenge: bytes) -> bytes | None:
        self._step = self._final
        return (scram.NO_CHANNEL_BINDING + self._bare).encode()

    def _final(self, challenge: bytes) -> bytes | None:
        server_first = scram.read_server_first(challenge)
        if not server_first.nonce.startswith(self._nonce) or server_first.nonce == self._nonce:
            raise scram.ScramError("the server's nonce does not continue ours")
        if not scram.ITERATIONS_MIN <= server_first.iterations <= scram.ITERATIONS_BORNE_MAX:
            raise scram.ScramError(f"{server_first.iterations} iterations are too few, or too many")
        salted = scram.salted_password(
            self.name, self._password, salt=server_first.salt, iterations=server_first.iterations
        )
        unproved = scram.client_final_unproved(scram.NO_CHANNEL_BINDING, server_first.nonce)
        message = scram.auth_message(self._bare, challenge.decode(), unproved)
        self._server_signature = scram.server_signature(self.name, scram.server_key(self.name, salted), message)
        self._step = self._verified
        proof = scram.client_proof(self.name, salted, message)
        return f"{unproved},p={scram.base64_text(proof)}".encode()

    def _verified(self, challenge: bytes) -> bytes | None:
        if not hmac.compare_digest(scram.read_server_final(challenge), self._server_signature):
            raise scram.ScramError("the server does not know the password")
        self._step = self._over
        return None

    def _over(self, _challenge: bytes) -> bytes | None:
        return None
