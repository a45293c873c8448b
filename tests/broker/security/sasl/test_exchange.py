"""The state machine of a login: every state, whatever comes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.decoys import Decoys
from tidemark.broker.security.sasl.exchange import Login, Outcome, SaslExchange
from tidemark.broker.security.sasl.plain import PlainServer, check_against
from tidemark.broker.security.sasl.scram import KnownUser, ScramServer, ScramUsers
from tidemark.broker.security.sasl.steps import Accepted, AuthenticationFailed, Blocking, ServerMechanism
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import RequestHeader, request_frame, response_body_at
from tidemark.protocol.messages.api_versions import ApiVersionsRequest
from tidemark.protocol.messages.metadata import MetadataRequest
from tidemark.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidemark.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidemark.protocol.sasl.client import Login as ClientLogin
from tidemark.protocol.sasl.client import ScramClient
from tidemark.protocol.sasl.scram import make_credential
from tidemark.protocol.schema import api, codec

ANN = Principal("User", "ann")
KNOWN = KnownUser(ANN, make_credential("SCRAM-SHA-512", "secret", salt=b"salt"))
RIGHT = b"\0ann\0secret"


class Blocks:
    """A mechanism that has to think."""

    def evaluate(self, token: bytes) -> Blocking:
        return Blocking(run=lambda: Accepted(principal=ANN, expires_at_ms=5_000))


def scram() -> ServerMechanism:
    users = ScramUsers(
        mechanism="SCRAM-SHA-512",
        users={"ann": KNOWN}.get,
        tokens=lambda _: None,
        decoy=Decoys("SCRAM-SHA-512", dict, key=b"only here"),
    )
    return ScramServer(users, nonce="server")


MECHANISMS: dict[str, Callable[[], ServerMechanism]] = {
    "PLAIN": lambda: PlainServer(check_against({"ann": "secret", "bob": "other"}), blocks=False),
    "SCRAM-SHA-512": scram,
    "BLOCKS": Blocks,
}


def exchange(previous: Login | None = None, lifetime_ms: int | None = None) -> SaslExchange:
    return SaslExchange(MECHANISMS, lifetime_ms=lambda _mechanism, expires: expires or lifetime_ms, previous=previous)


def frame(request: Any, version: int) -> bytes:
    body = bytearray()
    declared = api(type(request))
    codec(type(request), version).encode(request, body)
    return request_frame(RequestHeader(declared.key, version, 7, "c"), body, flexible=version in declared.flexible)[4:]


def answer(outcome: Outcome, response: type[Any], version: int) -> Any:
    assert outcome.reply is not None
    size, correlation_id = struct.unpack_from(">ii", outcome.reply)
    assert (size, correlation_id) == (len(outcome.reply) - 4, 7)
    rest = memoryview(outcome.reply)[4:]
    return codec(response, version).decode(rest, response_body_at(rest, response, version))


def handshake(mechanism: str, version: int = 1) -> bytes:
    return frame(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data: bytes, version: int = 2) -> bytes:
    return frame(SaslAuthenticateRequest(auth_bytes=data), version)


def test_a_login_by_plain() -> None:
    one = exchange()
    assert one.receive(frame(ApiVersionsRequest(), 0)).serve
    offered = answer(one.receive(handshake("PLAIN")), SaslHandshakeResponse, 1)
    assert (offered.error_code, offered.mechanisms) == (0, list(MECHANISMS))
    outcome = one.receive(token(RIGHT))
    assert answer(outcome, SaslAuthenticateResponse, 2).error_code == 0
    assert outcome.login == Login(mechanism="PLAIN", principal=ANN, lifetime_ms=None)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_login_by_scram(version: int) -> None:
    one = exchange(lifetime_ms=9)
    client = ScramClient(ClientLogin(mechanism="SCRAM-SHA-512", user="ann", password="secret"), nonce="c")
    one.receive(handshake("SCRAM-SHA-512"))
    challenge = b""
    for _ in range(2):
        said = client.respond(challenge)
        assert said is not None
        outcome = one.receive(token(said, version))
        reply = answer(outcome, SaslAuthenticateResponse, version)
        challenge = bytes(reply.auth_bytes)
    assert client.respond(challenge) is None
    assert outcome.login == Login(mechanism="SCRAM-SHA-512", principal=ANN, lifetime_ms=9)
    assert reply.session_lifetime_ms == (9 if version else 0)


def test_bare_tokens_follow_a_handshake_of_version_0() -> None:
    one = exchange()
    one.receive(handshake("PLAIN", 0))
    outcome = one.receive(RIGHT)
    assert (outcome.reply, outcome.login is not None) == (bytes(4), True)
    other = exchange()
    other.receive(handshake("PLAIN", 0))
    refused = other.receive(b"\0ann\0wrong")
    assert refused.reply is None
    assert refused.failure is not None


@pytest.mark.parametrize("data", [b"\0ann\0wrong", b"\0nobody\0secret"])
def test_a_wrong_password_and_an_unknown_user_are_told_the_same(data: bytes) -> None:
    one = exchange()
    one.receive(handshake("PLAIN"))
    reply = answer(one.receive(token(data)), SaslAuthenticateResponse, 2)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.error_message == "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret")])
def test_scram_tells_nobody_who_exists(user: str, password: str) -> None:
    salts = set()
    for _ in range(2):
        one = exchange()
        client = ScramClient(ClientLogin(mechanism="SCRAM-SHA-512", user=user, password=password), nonce="c")
        one.receive(handshake("SCRAM-SHA-512"))
        challenge = bytes(
            answer(one.receive(token(client.respond(b"") or b"")), SaslAuthenticateResponse, 2).auth_bytes
        )
        salts.add(challenge)
        reply = answer(one.receive(token(client.respond(challenge) or b"")), SaslAuthenticateResponse, 2)
        assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert reply.error_message == (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512"
        )
    assert len(salts) == 1


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are() -> None:
    outcome = exchange().receive(handshake("GSSAPI"))
    reply = answer(outcome, SaslHandshakeResponse, 1)
    assert (reply.error_code, reply.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, list(MECHANISMS))
    assert outcome.failure is not None


def test_nothing_but_a_login_is_answered_before_one() -> None:
    assert exchange().receive(frame(MetadataRequest(topics=None), 9)).failure is not None
    assert exchange().receive(token(RIGHT)).failure is not None
    one = exchange()
    one.receive(handshake("PLAIN"))
    outcome = one.receive(frame(MetadataRequest(topics=None), 9))
    assert (outcome.reply, outcome.failure is not None) == (None, True)


def test_versions_are_asked_for_once_or_again_after_one_that_is_not_known() -> None:
    one = exchange()
    unknown = bytearray(frame(ApiVersionsRequest(), 0))
    unknown[2:4] = (99).to_bytes(2, "big")
    assert one.receive(unknown).serve
    assert one.receive(frame(ApiVersionsRequest(), 3)).serve
    assert one.receive(frame(ApiVersionsRequest(), 3)).failure is not None


def test_a_mechanism_that_blocks_is_waited_for() -> None:
    one = exchange()
    one.receive(handshake("BLOCKS"))
    outcome = one.receive(token(b"x"))
    assert outcome.blocking is not None
    assert one.is_waiting
    finished = one.resume(outcome.blocking.run())
    assert finished.login == Login(mechanism="BLOCKS", principal=ANN, lifetime_ms=5_000)
    assert one.receive(token(b"x")).failure is not None


def test_a_login_is_renewed_by_the_same_mechanism_and_principal_only() -> None:
    before = Login(mechanism="PLAIN", principal=ANN, lifetime_ms=1)
    one = exchange(previous=before)
    one.receive(handshake("PLAIN"))
    assert one.receive(token(RIGHT)).login is not None
    other = exchange(previous=before)
    other.receive(handshake("PLAIN"))
    reply = answer(other.receive(token(b"\0bob\0other")), SaslAuthenticateResponse, 2)
    assert reply.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    third = exchange(previous=before)
    third.receive(handshake("BLOCKS"))
    assert third.receive(token(b"x")).failure is not None
    assert exchange(previous=before).receive(frame(ApiVersionsRequest(), 0)).failure is not None


FRAMES = st.sampled_from(
    [
        handshake("PLAIN"),
        handshake("PLAIN", 0),
        handshake("SCRAM-SHA-512"),
        handshake("BLOCKS"),
        token(RIGHT),
        token(b"n,,n=ann,r=c", 0),
        token(b"\0ann\0no", 1),
        frame(ApiVersionsRequest(), 3),
        frame(MetadataRequest(topics=None), 9),
    ]
)


@given(st.lists(FRAMES | st.binary(max_size=40), max_size=8), st.data())
def test_no_order_of_frames_logs_in_without_the_password(frames: list[bytes], data: st.DataObject) -> None:
    """Frames are cut and changed at random; nothing raises, and only PLAIN's right token lets in."""
    one = exchange()
    for each in frames:
        if each and data.draw(st.booleans()):
            at = data.draw(st.integers(0, len(each) - 1))
            each = each[:at] + data.draw(st.binary(max_size=3)) + each[at + 1 :]
        outcome = one.receive(each)
        if outcome.blocking is not None:
            outcome = one.refuse(AuthenticationFailed("no"))
        if outcome.login is not None:
            assert RIGHT in each
        if outcome.failure is not None:
            assert one.receive(token(RIGHT)).login is None
            return
