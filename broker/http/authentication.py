"""Who sends a request, by its Authorization header: the same users and tokens as on Kafka's SASL listeners.

Basic credentials go through the very exchange that a Kafka client would have with PLAIN or SCRAM, here with both of its
sides; a bearer token goes through OAUTHBEARER. What succeeded is remembered for a moment: deriving SCRAM's keys costs
milliseconds, and HTTP clients send their password with every request.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Final

from tidemark.broker.core.principal import Principal
from tidemark.broker.http.fair_turns import FairTurns
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.broker.security.sasl.exchange import NewMechanism
from tidemark.broker.security.sasl.login_log import LoginLog
from tidemark.broker.security.sasl.steps import Accepted, AuthenticationFailed, Blocking, Challenge, ServerMechanism
from tidemark.environment import random_bytes, wall_clock_ms
from tidemark.protocol.sasl import scram

REMEMBERED_MS: Final = 10_000  # how long a password that was changed still serves, at most
REMEMBERED_MAX: Final = 10_000
BEARER: Final = "OAUTHBEARER"
PLAIN: Final = "PLAIN"
NONCE_BYTES: Final = 18


class HttpAuthentication:
    def __init__(
        self,
        mechanisms: Mapping[str, NewMechanism],
        *,
        threads: Executor,
        log: LoginLog,
        failure_delay_seconds: Callable[[], float],
    ) -> None:
        self._mechanisms = mechanisms
        self._threads = threads
        self._log = log
        self._failure_delay_seconds = failure_delay_seconds
        self._salt = random_bytes(NONCE_BYTES)
        # Deriving keys is the client's work elsewhere, and here it is ours: those who guess passwords get one processor
        # at most, one of the threads on which others log in, and every other turn.
        self._deriving = FairTurns(1)
        self._remembered: OrderedDict[bytes, tuple[Principal, int]] = OrderedDict()  # until when, in ms

    async def principal_of(self, request: HttpRequest) -> Principal:
        """Raises Problem."""
        header = request.headers.get("authorization", "")
        digest = hashlib.sha256(self._salt + header.encode(errors="replace")).digest()
        found = self._remembered.get(digest)
        if found is not None and wall_clock_ms() < found[1]:
            return found[0]
        accepted, mechanism = await self._log_in(header, request)
        self._log.accepted(principal=str(accepted.principal), mechanism=mechanism, peer=request.host, again=False)
        self._remember(digest, accepted)
        return accepted.principal

    def _remember(self, digest: bytes, accepted: Accepted) -> None:
        until = wall_clock_ms() + REMEMBERED_MS
        if accepted.expires_at_ms is not None:
            until = min(until, accepted.expires_at_ms)
        self._remembered[digest] = accepted.principal, until
        while len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    async def _log_in(self, header: str, request: HttpRequest) -> tuple[Accepted, str]:
        kind, _, rest = header.partition(" ")
        tried = self._logins(kind.lower(), rest.strip())
        failure = AuthenticationFailed("no credentials that this listener takes")
        loop = asyncio.get_running_loop()
        for mechanism, log_in in tried.items():
            try:
                turn = self._deriving.turn_of(request.host) if mechanism in scram.HASHES else contextlib.nullcontext()
                async with turn:
                    return await loop.run_in_executor(self._threads, log_in), mechanism
            except AuthenticationFailed as error:
                failure = error
        if tried:
            names = " or ".join(tried)
            self._log.refused(user=failure.user, mechanism=names, peer=request.host, reason=failure.reason)
            await asyncio.sleep(self._failure_delay_seconds())
        raise Problem(
            401,
            "SASL_AUTHENTICATION_FAILED",
            "The credentials are missing or wrong.",
            headers=(("WWW-Authenticate", self._wanted()),),
        )

    def _wanted(self) -> str:
        takes_passwords = any(name != BEARER for name in self._mechanisms)
        kinds = [*(['Basic realm="tidemark", charset="UTF-8"'] if takes_passwords else [])]
        return ", ".join([*kinds, *(["Bearer"] if BEARER in self._mechanisms else [])])

    def _logins(self, kind: str, rest: str) -> dict[str, Callable[[], Accepted]]:
        """What is tried, by mechanism."""
        if kind == "bearer" and BEARER in self._mechanisms:
            return {BEARER: lambda: bearer(self._mechanisms[BEARER](), rest)}
        if kind != "basic":
            return {}
        user, password = _basic(rest)
        found: dict[str, Callable[[], Accepted]] = {}
        for name, new in self._mechanisms.items():
            if name == PLAIN:
                found[name] = lambda new=new: plain(new(), user, password)  # type: ignore[misc]
            elif name in scram.HASHES:
                found[name] = lambda name=name, new=new: scrammed(name, new(), user, password)  # type: ignore[misc]
        return found


def _basic(text: str) -> tuple[str, str]:
    try:
        user, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise Problem(400, "INVALID_REQUEST", "The Authorization header cannot be read.") from None
    if not colon or "\0" in user + password:
        raise Problem(400, "INVALID_REQUEST", "The Authorization header cannot be read.")
    return user, password


# -- both sides of an exchange, on a thread -----------------------------------


def plain(server: ServerMechanism, user: str, password: str) -> Accepted:
    return _accepted(server, f"\0{user}\0{password}".encode())


def bearer(server: ServerMechanism, token: str) -> Accepted:
    return _accepted(server, f"n,,\x01auth=Bearer {token}\x01\x01".encode())


def scrammed(mechanism: str, server: ServerMechanism, user: str, password: str) -> Accepted:
    bare = scram.client_first_bare(user, random_bytes(NONCE_BYTES).hex())
    challenge = _step(server, f"n,,{bare}".encode())
    if not isinstance(challenge, Challenge):
        raise AuthenticationFailed("the exchange ended too early", user=user)
    first = scram.read_server_first(challenge.token)
    unproved = scram.client_final_unproved("n,,", first.nonce)
    message = scram.auth_message(bare, challenge.token.decode(), unproved)
    salted = scram.salted_password(mechanism, password, salt=first.salt, iterations=first.iterations)
    proof = scram.base64_text(scram.client_proof(mechanism, salted, message))
    return _accepted(server, f"{unproved},p={proof}".encode())


def _accepted(server: ServerMechanism, token: bytes) -> Accepted:
    step = _step(server, token)
    if not isinstance(step, Accepted):
        raise AuthenticationFailed("the credentials were not accepted")
    return step


def _step(server: ServerMechanism, token: bytes) -> Challenge | Accepted:
    step = server.evaluate(token)
    return step.run() if isinstance(step, Blocking) else step
