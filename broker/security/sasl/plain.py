"""PLAIN (RFC 4616): name and password as they are. On a listener without TLS everyone on the way reads them.

Users come from the settings, or from a class of the operator's own, which may ask whatever it likes and so runs on a
thread.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.scram import OTHER_AUTHZID, USER_TYPE
from tidemark.broker.security.sasl.steps import Accepted, AuthenticationFailed, Blocking, Step

WRONG: Final = "Authentication failed: Invalid username or password"

Check = Callable[[str, str], bool]  # user, password


class PlainServer:
    def __init__(self, check: Check, *, blocks: bool) -> None:
        """`blocks`: if the check may take long."""
        self._check = check
        self._blocks = blocks

    def evaluate(self, token: bytes) -> Step:
        authzid, user, password = _parts(token)
        if not user or not password:
            missing = "username" if not user else "password"
            raise AuthenticationFailed(
                f"no {missing}", told=f"Authentication failed: {missing} not specified", user=user
            )
        if authzid not in ("", user):
            raise AuthenticationFailed("its authorization id is not its user", told=OTHER_AUTHZID, user=user)
        if self._blocks:
            return Blocking(run=lambda: self._checked(user, password))
        return self._checked(user, password)

    def _checked(self, user: str, password: str) -> Accepted:
        found = self._check(user, password)
        if found and found is not True:  # some object, of a class that was not meant for this: it would let all in
            reason = f"it was answered by {type(found).__name__}, and not by True or False"
            raise AuthenticationFailed(reason, told=WRONG, user=user)
        if not found:
            raise AuthenticationFailed("no such user, or wrong password", told=WRONG, user=user)
        return Accepted(principal=Principal(USER_TYPE, user))


def check_against(users: Mapping[str, str]) -> Check:
    """Against passwords that are known here. An unknown user takes as long as a wrong password."""
    digests = {user: _digest(password) for user, password in users.items()}
    nobody = bytes(len(_digest("")))

    def check(user: str, password: str) -> bool:
        return hmac.compare_digest(digests.get(user, nobody), _digest(password))

    return check


def _digest(password: str) -> bytes:
    """Of one length, so that comparing takes one time."""
    return hashlib.sha256(password.encode()).digest()


def _parts(token: bytes) -> tuple[str, str, str]:
    try:
        authzid, user, password = token.decode().split("\0")
    except ValueError:
        raise AuthenticationFailed("not a PLAIN token") from None
    return authzid, user, password
