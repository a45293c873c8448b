"""Is a JWT (RFC 7519) valid, and who does it say the client is? PyJWT checks signatures; what must be in it is ours."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidemark.broker.security.sasl.jwks import KeySet
from tidemark.broker.security.sasl.oauthbearer import Claims, InvalidToken

# Signatures by a public key. Never `none`, and never a MAC: its key would be the public one.
ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
REQUIRED: Final = ("exp", "iat")
TIMES: Final = (*REQUIRED, "nbf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    issuer: str | None
    audience: tuple[str, ...]
    sub_claim: str = "sub"
    scope_claim: str = "scope"
    skew_seconds: int = 30


class JwtValidator:
    def __init__(self, keys: KeySet, expected: Expected, *, now: Callable[[], float]) -> None:
        self._keys = keys
        self._expected = expected
        self._now = now

    def __call__(self, token: str) -> Claims:
        import jwt  # 30 ms, and only where tokens are used

        expected = self._expected
        try:
            header = jwt.get_unverified_header(token)
            claims = jwt.decode(
                token,
                self._keys.find(header.get("kid")),
                algorithms=list(ALGORITHMS),
                audience=list(expected.audience),
                issuer=expected.issuer,
                options={"require": ["aud", "iss"], "verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(str(error)) from None
        check_times(claims, now=self._now(), skew_seconds=expected.skew_seconds)
        return claims_of(claims, expected)


class UnsecuredJwtValidator:
    """Tokens that nobody signed: for tests, where somebody asked for them."""

    def __init__(self, expected: Expected, *, now: Callable[[], float]) -> None:
        self._expected = expected
        self._now = now

    def __call__(self, token: str) -> Claims:
        header, claims = _unsecured(token)
        if header.get("alg") != "none":
            raise InvalidToken("only tokens without a signature are accepted here")
        check_times(claims, now=self._now(), skew_seconds=self._expected.skew_seconds)
        return claims_of(claims, self._expected)


def check_times(claims: Mapping[str, Any], *, now: float, skew_seconds: float) -> None:
    times = {name: claims.get(name) for name in TIMES if name in REQUIRED or name in claims}
    for name, value in times.items():
        if not _is_number(value):
            raise InvalidToken(f"its {name} is missing, or no time")
    if now >= claims["exp"] + skew_seconds:
        raise InvalidToken("it has expired")
    if now < max(claims["iat"], claims.get("nbf", 0)) - skew_seconds:
        raise InvalidToken("it is of the future")


def claims_of(claims: Mapping[str, Any], expected: Expected) -> Claims:
    name = claims.get(expected.sub_claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidToken(f"it has no {expected.sub_claim}")
    scope = claims.get(expected.scope_claim, ())
    words = scope.split() if isinstance(scope, str) else scope
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise InvalidToken(f"its {expected.scope_claim} is no list of words")
    return Claims(name, int(claims["exp"] * 1000), frozenset(words))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def _unsecured(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    head, _, rest = token.partition(".")
    body, _, signature = rest.partition(".")
    try:
        header, claims = (json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in (head, body))
    except ValueError:
        raise InvalidToken("it is no JWT") from None
    if signature or not isinstance(header, dict) or not isinstance(claims, dict):
        raise InvalidToken("it is no JWT without a signature")
    return header, claims
