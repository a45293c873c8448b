"""Which tokens are accepted, and which are not."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tidemark.broker.security.sasl.jwks import KeySet
from tidemark.broker.security.sasl.jwt_validation import Expected, JwtValidator, UnsecuredJwtValidator
from tidemark.broker.security.sasl.oauthbearer import Claims, InvalidToken

NOW = 1_000_000.0
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
EXPECTED = Expected(issuer="https://issuer", audience=("tidemark", "other"))
RIGHT = {"sub": "ann", "iss": "https://issuer", "aud": "tidemark", "exp": NOW + 60, "iat": NOW, "scope": "a b"}


class Issuer:
    """A key document, how often it was fetched, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.fetched = 0
        self.is_broken = False
        self.keys = {"one": RSA.public_key()}

    def fetch(self) -> bytes:
        self.fetched += 1
        if self.is_broken:
            raise OSError("no route")
        listed = [
            {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key)), "kid": kid, "use": "sig", "alg": "RS256"}
            for kid, key in self.keys.items()
        ]
        listed.append({**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC.public_key())), "kid": "ec"})
        listed.append({"kty": "oct", "kid": "secret", "k": base64.urlsafe_b64encode(b"x" * 32).decode()})
        listed.append({"kty": "unheard of", "kid": "new"})
        return json.dumps({"keys": listed}).encode()

    def key_set(self) -> KeySet:
        return KeySet(self.fetch, clock=lambda: self.now, refresh_seconds=3600, retry_seconds=0.1, retry_seconds_max=10)


def token(kid: str | None = "one", key: Any = RSA, algorithm: str = "RS256", **changes: Any) -> str:
    claims = {name: value for name, value in {**RIGHT, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid})


def unsigned(**changes: Any) -> str:
    parts = [{"alg": "none"}, {**RIGHT, **changes}]
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def validate(issuer: Issuer) -> JwtValidator:
    return JwtValidator(issuer.key_set(), EXPECTED, now=lambda: NOW)


def test_a_token_of_the_issuer_for_us(validate: JwtValidator) -> None:
    assert validate(token()) == Claims("ann", int((NOW + 60) * 1000), frozenset(("a", "b")))
    assert validate(token("ec", EC, "ES256", aud=["x", "other"], scope=["c"])).scope == {"c"}


@pytest.mark.parametrize(
    "changes",
    [
        {"exp": NOW - 31},
        {"iat": NOW + 31},
        {"nbf": NOW + 31},
        {"exp": None},
        {"iat": None},
        {"sub": None},
        {"sub": " "},
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "others"},
        {"aud": None},
        {"scope": 7},
        {"exp": 1e300},
    ],
)
def test_a_token_that_is_not_right(validate: JwtValidator, changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        validate(token(**changes))


@pytest.mark.parametrize("changes", [{"exp": NOW - 29}, {"iat": NOW + 29}, {"nbf": NOW + 29}])
def test_the_issuers_clock_may_be_off_a_little(validate: JwtValidator, changes: dict[str, Any]) -> None:
    assert validate(token(**changes)).principal == "ann"


def test_nobody_else_can_sign(validate: JwtValidator) -> None:
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = jwt.algorithms.RSAAlgorithm.to_jwk(RSA.public_key())
    forgeries = [token(key=stranger), unsigned(), "", "a.b.c", token("secret", "x" * 32, "HS256"), token("none")]
    forgeries.append(token("one", str(public) * 2, "HS256"))
    for forged in forgeries:
        with pytest.raises(InvalidToken):
            validate(forged)


def test_keys_are_kept_and_fetched_again_for_one_that_is_new(issuer: Issuer, validate: JwtValidator) -> None:
    validate(token())
    validate(token())
    assert issuer.fetched == 1
    renewed = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer.keys = {"two": renewed.public_key()}
    with pytest.raises(InvalidToken):  # too soon after the last fetch
        validate(token("two", renewed))
    issuer.now += 10
    assert validate(token("two", renewed)).principal == "ann"
    assert issuer.fetched == 2
    for _ in range(5):
        with pytest.raises(InvalidToken, match="no key"):
            validate(token("made up"))
    assert issuer.fetched == 2


def test_keys_go_on_being_used_while_they_cannot_be_fetched(issuer: Issuer, validate: JwtValidator) -> None:
    validate(token())
    issuer.is_broken = True
    issuer.now += 4000
    for _ in range(5):
        assert validate(token()).principal == "ann"
    assert issuer.fetched == 2


def test_unsecured_tokens_are_for_who_asked_for_them() -> None:
    validate = UnsecuredJwtValidator(EXPECTED, now=lambda: NOW)
    assert validate(unsigned()).principal == "ann"
    for refused in (unsigned(exp=NOW - 31), unsigned(sub=""), token(), "x", unsigned() + "x"):
        with pytest.raises(InvalidToken):
            validate(refused)
