"""One connection's login as a state machine: frames in, what to do out. No socket, no clock, no thread.

    handshake or ApiVersions ─► handshake ─► tokens ─► over

Tokens travel in SaslAuthenticate requests, or after a handshake of version 0 bare, as clients before Kafka 1.0 send
them. Whatever does not belong in a state ends the connection.

Re-authentication (KIP-368) begins with a handshake, and may change neither mechanism nor principal.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.steps import (
    Accepted,
    AuthenticationFailed,
    Blocking,
    Challenge,
    ServerMechanism,
    Step,
)
from tidemark.protocol.apis import apis
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import (
    API_VERSIONS_KEY,
    REQUEST_BYTES_MIN,
    RequestHeader,
    put_response_start,
    read_request_header,
    request_start,
    response_room,
    split_selector,
)
from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidemark.protocol.schema import DecodeError, api, codec

HANDSHAKE: Final = api(SaslHandshakeRequest)
AUTHENTICATE: Final = api(SaslAuthenticateRequest)
FIRST_FLEXIBLE: Final = {AUTHENTICATE.key: AUTHENTICATE.flexible.first}
MECHANISM_CHARS_MAX: Final = 64  # of a name that is quoted in a log line

NewMechanism = Callable[[], ServerMechanism]


class State(Enum):
    HANDSHAKE_OR_VERSIONS = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    WAITING = auto()  # for what a thread makes of a token
    OVER = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A login that has succeeded."""

    mechanism: str
    principal: Principal
    lifetime_ms: int | None  # None: for as long as the connection lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The connection ends, after the reply."""

    reason: str
    mechanism: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    reply: bytes | None = None  # a whole frame
    login: Login | None = None
    failure: Failure | None = None
    blocking: Blocking | None = None  # run it on a thread, and give what comes of it to `resume` or `refuse`
    serve: bool = False  # an ApiVersions request: to be answered as any other


class SaslExchange:
    def __init__(
        self,
        mechanisms: Mapping[str, NewMechanism],
        *,
        lifetime_ms: Callable[[str, int | None], int | None],
        previous: Login | None = None,
    ) -> None:
        """`mechanisms`: those that are enabled; `lifetime_ms`: of a session, by mechanism and the credential's end;
        `previous`: the login that is to be renewed."""
        self._mechanisms = mechanisms
        self._lifetime_ms = lifetime_ms
        self._previous = previous
        self._state = State.HANDSHAKE_OR_VERSIONS if previous is None else State.HANDSHAKE
        self._name = ""
        self._mechanism: ServerMechanism | None = None
        self._is_bare = False  # tokens without a header
        self._header = RequestHeader(0, 0, 0, None)

    @property
    def is_waiting(self) -> bool:
        return self._state is State.WAITING

    def receive(self, frame: bytes | bytearray) -> Outcome:
        """What to do about a frame (without its length)."""
        try:
            if self._state is State.TOKENS:
                return self._token(frame)
            if self._state in (State.HANDSHAKE, State.HANDSHAKE_OR_VERSIONS):
                return self._request(frame)
        except DecodeError as error:
            return self._failed(f"it cannot be decoded: {error}")
        return self._failed("it sends more while its login is being decided, or over")

    # -- before the handshake ----------------------------------------------

    def _request(self, frame: bytes | bytearray) -> Outcome:
        if len(frame) < REQUEST_BYTES_MIN:
            return self._failed("a request too short for a header, before any login")
        key, version = split_selector(request_start(frame)[0])
        if key == HANDSHAKE.key and version in HANDSHAKE.versions:
            return self._handshake(frame)
        if key == API_VERSIONS_KEY and self._state is State.HANDSHAKE_OR_VERSIONS:
            if version in apis()[key].versions:  # KIP-511: after a version that we do not know it may ask once more
                self._state = State.HANDSHAKE
            return Outcome(serve=True)
        return self._failed(f"API key {key} (version {version}) before a login")

    def _handshake(self, frame: bytes | bytearray) -> Outcome:
        header, position = read_request_header(frame, first_flexible=FIRST_FLEXIBLE)
        wanted = codec(SaslHandshakeRequest, header.api_version).decode(memoryview(frame), position).mechanism
        self._name = wanted[:MECHANISM_CHARS_MAX]
        answer = SaslHandshakeResponse(mechanisms=list(self._mechanisms))
        new_mechanism = self._mechanisms.get(wanted)
        if new_mechanism is None:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._failed("the mechanism is not enabled", reply=_frame(header, answer))
        self._mechanism = new_mechanism()
        self._is_bare = header.api_version == 0
        self._state = State.TOKENS
        return Outcome(reply=_frame(header, answer))

    # -- tokens ------------------------------------------------------------

    def _token(self, frame: bytes | bytearray) -> Outcome:
        if self._is_bare:
            return self._evaluate(bytes(frame))
        if len(frame) < REQUEST_BYTES_MIN:
            return self._failed("a request too short for a header, in the middle of a login")
        key, version = split_selector(request_start(frame)[0])
        if key != AUTHENTICATE.key or version not in AUTHENTICATE.versions:
            return self._failed(f"API key {key} (version {version}) in the middle of a login")
        self._header, position = read_request_header(frame, first_flexible=FIRST_FLEXIBLE)
        request = codec(SaslAuthenticateRequest, version).decode(memoryview(frame), position)
        if self._previous is not None and self._previous.mechanism != self._name:
            told = (
                f"SASL mechanism '{self._previous.mechanism}' cannot be changed to '{self._name}' by re-authentication"
            )
            return self.refuse(AuthenticationFailed("another mechanism than before", told=told))
        return self._evaluate(bytes(request.auth_bytes))

    def _evaluate(self, token: bytes) -> Outcome:
        assert self._mechanism is not None
        try:
            step = self._mechanism.evaluate(token)
        except AuthenticationFailed as error:
            return self.refuse(error)
        return self.resume(step)

    def resume(self, step: Step) -> Outcome:
        """What follows from a step that the mechanism has come to."""
        if isinstance(step, Blocking):
            self._state = State.WAITING
            return Outcome(blocking=step)
        if isinstance(step, Challenge):
            self._state = State.TOKENS
            return Outcome(reply=self._reply(SaslAuthenticateResponse(auth_bytes=step.token)))
        return self._accepted(step)

    def _accepted(self, step: Accepted) -> Outcome:
        before = self._previous
        if before is not None and before.principal != step.principal:
            told = f"Cannot change principals during re-authentication from {before.principal} to {step.principal}"
            return self.refuse(
                AuthenticationFailed("another principal than before", told=told, user=step.principal.name)
            )
        lifetime_ms = self._lifetime_ms(self._name, step.expires_at_ms)
        self._state = State.OVER
        return Outcome(
            reply=self._reply(SaslAuthenticateResponse(auth_bytes=step.token, session_lifetime_ms=lifetime_ms or 0)),
            login=Login(mechanism=self._name, principal=step.principal, lifetime_ms=lifetime_ms),
        )

    def refuse(self, error: AuthenticationFailed) -> Outcome:
        """The login has failed: say so, in words that help no guessing."""
        during = "authentication" if self._previous is None else "re-authentication"
        told = error.told or (
            f"Authentication failed during {during} due to invalid credentials with SASL mechanism {self._name}"
        )
        answer = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told)
        return self._failed(error.reason, reply=None if self._is_bare else self._reply(answer), user=error.user)

    def _failed(self, reason: str, *, reply: bytes | None = None, user: str = "") -> Outcome:
        self._state = State.OVER
        return Outcome(reply=reply, failure=Failure(reason=reason, mechanism=self._name, user=user))

    def _reply(self, answer: SaslAuthenticateResponse) -> bytes:
        if self._is_bare:
            return struct.pack(">i", len(answer.auth_bytes)) + answer.auth_bytes
        return _frame(self._header, answer)


def _frame(header: RequestHeader, answer: Any) -> bytes:
    out = bytearray(response_room(type(answer), header.api_version))
    codec(type(answer), header.api_version).encode(answer, out)
    put_response_start(out, 0, len(out) - 4, header.correlation_id)
    return bytes(out)
