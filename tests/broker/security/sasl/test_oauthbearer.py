from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.oauthbearer import INVALID, Claims, InvalidToken, OAuthBearerServer
from tidemark.broker.security.sasl.steps import Accepted, AuthenticationFailed, Blocking, Challenge


def validate(token: str) -> Claims:
    if token != "right":
        raise InvalidToken("wrong")
    return Claims("ann", 7)


def said(server: OAuthBearerServer, data: bytes) -> Accepted | Challenge:
    step = server.evaluate(data)
    assert isinstance(step, Blocking)
    return step.run()


def test_a_valid_token_lets_in_until_it_ends() -> None:
    outcome = said(OAuthBearerServer(validate), b"n,,\x01auth=Bearer right\x01traceId=1\x01\x01")
    assert outcome == Accepted(principal=Principal("User", "ann"), expires_at_ms=7)


def test_an_invalid_token_is_told_in_two_steps() -> None:
    server = OAuthBearerServer(validate)
    assert said(server, b"n,,\x01auth=Bearer wrong\x01\x01") == Challenge(token=INVALID.encode())
    with pytest.raises(AuthenticationFailed):
        server.evaluate(b"n,,\x01auth=Bearer right\x01\x01")


def test_nobody_is_somebody_else() -> None:
    with pytest.raises(AuthenticationFailed):
        said(OAuthBearerServer(validate), b"n,a=bob,\x01auth=Bearer right\x01\x01")


@given(st.binary(max_size=60) | st.text(alphabet="n,a=\x01authBer right", max_size=40).map(str.encode))
def test_only_the_right_token_lets_in(data: bytes) -> None:
    try:
        outcome = said(OAuthBearerServer(validate), data)
    except AuthenticationFailed:
        return
    assert isinstance(outcome, Challenge) or b"right" in data
