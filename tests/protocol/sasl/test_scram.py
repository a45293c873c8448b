"""SCRAM by the example of RFC 7677, and against what is not SCRAM."""

from __future__ import annotations

import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.protocol.sasl import scram
from tidemark.protocol.sasl.client import Login, LoginRefused, ScramClient

# RFC 7677, section 3
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client(password: str = "pencil") -> ScramClient:
    return ScramClient(Login(mechanism="SCRAM-SHA-256", user="user", password=password), nonce="rOprNGfwEbeRWgbNEkqO")


def test_the_client_says_what_the_standard_says() -> None:
    one = client()
    assert one.respond(b"") == CLIENT_FIRST
    final = one.respond(SERVER_FIRST)
    assert final is not None
    assert final.endswith(f",p={PROOF}".encode())
    assert one.respond(f"v={SIGNATURE}".encode()) is None


def test_a_server_that_does_not_know_the_password_is_found_out() -> None:
    one = client()
    one.respond(b"")
    one.respond(SERVER_FIRST)
    with pytest.raises(LoginRefused, match="does not know"):
        one.respond(b"v=" + base64.b64encode(bytes(32)))


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOxx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        b"r=rOprNGfwEbeRWgbNEkqOxx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=999999999",
        b"nonsense",
    ],
)
def test_the_client_refuses_a_challenge_that_is_weak_or_not_for_it(challenge: bytes) -> None:
    one = client()
    one.respond(b"")
    with pytest.raises(LoginRefused):
        one.respond(challenge)


def test_what_a_server_keeps_proves_the_password_and_shows_nothing() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kept = scram.make_credential("SCRAM-SHA-256", "pencil", salt=salt)
    unproved = f"c=biws,r={scram.read_server_first(SERVER_FIRST).nonce}"
    message = scram.auth_message(CLIENT_FIRST[3:].decode(), SERVER_FIRST.decode(), unproved)
    assert scram.proves("SCRAM-SHA-256", kept, base64.b64decode(PROOF), message)
    assert not scram.proves("SCRAM-SHA-256", kept, bytes(32), message)
    assert not scram.proves("SCRAM-SHA-256", kept, b"short", message)
    assert repr(kept) == "Credential(iterations=4096)"


def test_names_with_commas_and_equal_signs_travel() -> None:
    bare = scram.client_first_bare("a,b=c", "nonce")
    assert scram.read_client_first(f"n,,{bare}".encode()).user == "a,b=c"


def test_the_extension_of_delegation_tokens_is_read() -> None:
    assert scram.read_client_first(b"n,,n=id,r=x,tokenauth=true").extensions == {"tokenauth": "true"}


@given(st.binary(max_size=200) | st.text(alphabet="n,=ra=cpxs0123=~\0é", max_size=60).map(str.encode))
def test_nothing_but_a_scram_error_comes_out_of_what_is_no_scram(token: bytes) -> None:
    for read in (scram.read_client_first, scram.read_client_final, scram.read_server_first, scram.read_server_final):
        with contextlib.suppress(scram.ScramError):
            read(token)
