"""OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else has issued says who the client is.

n,,^Aauth=Bearer eyJ…^A^A      ─►  an empty answer, or {"status":"invalid_token"} and, after a last ^A, the failure
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.scram import USER_TYPE
from tidemark.broker.security.sasl.steps import Accepted, AuthenticationFailed, Blocking, Challenge, Step

INVALID: Final = '{"status":"invalid_token"}'
ACKNOWLEDGED: Final = b"\x01"

_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^=,\x00-\x1f]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)+)\x01"
)
_BEARER = re.compile(r"bearer +([-._~+/A-Za-z0-9]+=*)", re.IGNORECASE)


class Claims(NamedTuple):
    """What is needed of a token that was found to be valid."""

    principal: str
    expires_at_ms: int
    scope: frozenset[str] = frozenset()


class InvalidToken(Exception):
    """Why a token is not accepted, for our log."""


Validate = Callable[[str], Claims]  # may fetch keys: it runs on a thread. Raises InvalidToken.


class OAuthBearerServer:
    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal: AuthenticationFailed | None = None

    def evaluate(self, token: bytes) -> Step:
        if self._refusal is not None:  # whatever it says: that was its last word
            raise self._refusal
        if token == ACKNOWLEDGED:
            raise AuthenticationFailed("it acknowledges an error that it was not told")
        authzid, bearer = _parse(token)
        return Blocking(run=lambda: self._checked(authzid, bearer))

    def _checked(self, authzid: str, bearer: str) -> Accepted | Challenge:
        try:
            claims = self._validate(bearer)
        except InvalidToken as error:
            self._refusal = AuthenticationFailed(f"the token is invalid: {error}", told=INVALID)
            return Challenge(token=INVALID.encode())
        if authzid and authzid != claims.principal:
            told = (
                f"Authentication failed: Client requested an authorization id ({authzid}) that is different from the"
                f" token's principal name ({claims.principal})"
            )
            raise AuthenticationFailed("its authorization id is not its user", told=told, user=claims.principal)
        return Accepted(principal=Principal(USER_TYPE, claims.principal), expires_at_ms=claims.expires_at_ms)


def _parse(token: bytes) -> tuple[str, str]:
    """The authorization id, which may be empty, and the bearer token."""
    try:
        found = _CLIENT_FIRST.fullmatch(token.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise AuthenticationFailed("not an OAUTHBEARER token")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise AuthenticationFailed("an OAUTHBEARER token without a bearer token")
    authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return authzid, bearer[1]
