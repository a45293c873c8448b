"""The keys that JWTs are signed with (RFC 7517): fetched from a URL or a file, kept, and fetched again. For threads."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from tidemark.broker.security.sasl.oauthbearer import InvalidToken
from tidemark.environment import current

if TYPE_CHECKING:
    from jwt import PyJWK

FETCH_SECONDS_MAX: Final = 10.0
DOCUMENT_BYTES_MAX: Final = 1 << 20
KEYS_MAX: Final = 1000

Fetch = Callable[[], bytes]


def fetch_from(url: str) -> Fetch:
    def fetch() -> bytes:
        with urllib.request.urlopen(url, timeout=FETCH_SECONDS_MAX) as answer:
            document: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
        if len(document) > DOCUMENT_BYTES_MAX:
            raise OSError(f"a document of more than {DOCUMENT_BYTES_MAX} bytes")
        return document

    return fetch


class KeySet:
    """Keys by their id. Several threads may ask; one of them fetches, and the others wait for it."""

    def __init__(
        self,
        fetch: Fetch,
        *,
        clock: Callable[[], float],
        refresh_seconds: float,
        retry_seconds: float,
        retry_seconds_max: float,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = retry_seconds
        self._retry_seconds_max = retry_seconds_max
        self._lock = current().new_lock()
        self._keys: Mapping[str, PyJWK] = {}
        self._fetched_at = float("-inf")
        self._not_before = float("-inf")  # of the next fetch
        self._failures = 0
        self._trouble = ""

    def find(self, kid: str | None) -> PyJWK:
        """The key of this id. One that is not known may be new, so the keys are fetched again for it, now and then."""
        with self._lock:
            now = self._clock()
            is_stale = now >= self._fetched_at + self._refresh_seconds
            if (is_stale or self._get(kid) is None) and now >= self._not_before:
                self._refresh(now)
            found = self._get(kid)
        if found is None:
            raise InvalidToken(self._trouble or f"there is no key {str(kid)[:100]!r} to check it with")
        return found

    def _get(self, kid: str | None) -> PyJWK | None:
        if kid is None:  # RFC 7515: it may be left out where there is only one
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(kid)

    def _refresh(self, now: float) -> None:
        """What was fetched before goes on being used if that fails."""
        try:
            self._keys = _parse(self._fetch())
        except (OSError, ValueError) as error:
            self._trouble = f"the keys could not be fetched: {error}"
            pause = min(self._retry_seconds * 2**self._failures, self._retry_seconds_max)
            self._failures = min(self._failures + 1, 32)
        else:
            self._fetched_at, self._trouble, self._failures = now, "", 0
            pause = self._retry_seconds_max  # for ids that are not there, whoever makes them up
        self._not_before = now + pause


def _parse(document: bytes) -> dict[str, PyJWK]:
    from jwt import PyJWK
    from jwt.exceptions import PyJWKError, PyJWTError

    listed = json.loads(document)
    keys = listed.get("keys") if isinstance(listed, dict) else None
    if not isinstance(keys, list) or len(keys) > KEYS_MAX:
        raise ValueError("it is no JWKS document")
    found: dict[str, PyJWK] = {}
    for index, each in enumerate(keys):
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
            continue  # a key for something else, or one that would have to be secret
        try:
            found[str(each.get("kid", index))] = PyJWK(each)
        except (PyJWKError, PyJWTError):
            continue  # of a kind that we cannot check with: others may be fine
    return found
