"""SCRAM's server half (RFC 5802): a user's password is proved without being told.

A user that does not exist gets a salt all the same, always the same one (`decoys`), and fails where a wrong password
fails: neither the messages nor their time tell who exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.broker.core.principal import Principal
from tidemark.broker.security.sasl.steps import Accepted, AuthenticationFailed, Blocking, Challenge, Step
from tidemark.protocol.sasl import scram
from tidemark.protocol.sasl.scram import Credential

OTHER_AUTHZID: Final = "Authentication failed: Client requested an authorization id that is different from username"
USER_TYPE: Final = "User"


class KnownUser(NamedTuple):
    principal: Principal
    credential: Credential
    expires_at_ms: int | None = None


# By user name. A callable: the look-up derives keys first, and belongs on a thread.
Derive = Callable[[], "KnownUser | None"]
Lookup = Callable[[str], "KnownUser | Derive | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUsers:
    """Whom one SCRAM mechanism lets in."""

    mechanism: str
    users: Lookup
    tokens: Lookup  # delegation tokens, by id (KIP-48)
    decoy: Callable[[str], Credential]  # of a user that does not exist


class ScramServer:
    def __init__(self, known: ScramUsers, *, nonce: str) -> None:
        self._mechanism = known.mechanism
        self._known = known
        self._nonce = nonce
        self._step: Callable[[bytes], Step] = self._first

    def evaluate(self, token: bytes) -> Step:
        try:
            return self._step(token)
        except scram.ScramError as error:
            raise AuthenticationFailed(str(error)) from error

    def _first(self, token: bytes) -> Step:
        first = scram.read_client_first(token)
        if first.authzid and first.authzid != first.user:
            raise AuthenticationFailed("its authorization id is not its user", told=OTHER_AUTHZID, user=first.user)
        lookup = self._known.tokens if _is_token(first.extensions) else self._known.users
        found = lookup(first.user)
        if callable(found):
            derive = found
            return Blocking(run=lambda: self._challenge(first, derive()))
        return self._challenge(first, found)

    def _challenge(self, first: scram.ClientFirst, found: KnownUser | None) -> Challenge:
        decoy = self._known.decoy(first.user)  # in any case, so that the time tells nothing either
        credential = decoy if found is None else found.credential
        self._nonce = first.nonce + self._nonce
        self._server_first = scram.server_first(self._nonce, credential)
        self._client_first, self._found, self._credential = first, found, credential
        self._step = self._final
        return Challenge(token=self._server_first.encode())

    def _final(self, token: bytes) -> Step:
        final = scram.read_client_final(token)
        first, found = self._client_first, self._found
        message = scram.auth_message(first.bare, self._server_first, final.unproved)
        is_proved = scram.proves(self._mechanism, self._credential, final.proof, message)
        if found is None:
            raise AuthenticationFailed("there is no such user, or it has no such credential", user=first.user)
        if not is_proved:
            raise AuthenticationFailed("wrong password", user=first.user)
        if final.nonce != self._nonce or final.channel_binding != first.header.encode():
            raise AuthenticationFailed("the nonce or the channel binding is another", user=first.user)
        signature = scram.server_signature(self._mechanism, self._credential.server_key, message)
        self._step = _over
        return Accepted(
            principal=found.principal,
            token=f"v={scram.base64_text(signature)}".encode(),
            expires_at_ms=found.expires_at_ms,
        )


def _is_token(extensions: Mapping[str, str]) -> bool:
    return extensions.get(scram.TOKEN_AUTH, "").lower() == "true"


def _over(_token: bytes) -> Step:
    raise AuthenticationFailed("it goes on after its login is over")
