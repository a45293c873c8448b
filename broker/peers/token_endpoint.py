"""The token that a node logs in with at others (OAUTHBEARER): an issuer's, for the node's client id (RFC 6749, 4.4), or
one that somebody keeps fresh in a file. A new one for each login; logins are few. For threads."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from tidemark.broker.config.sasl import TokenEndpoint
from tidemark.protocol.sasl.client import LoginRefused

FETCH_SECONDS_MAX: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 << 10


def tokens_of(endpoint: TokenEndpoint) -> Callable[[], str]:
    def fetch() -> str:
        try:
            answer = _asked(endpoint)
            return answer.strip() if endpoint.url.startswith("file:") else _token_in(answer)
        except (OSError, ValueError) as error:
            raise LoginRefused(f"there is no token from {endpoint.url}: {error}") from error

    return fetch


def _asked(endpoint: TokenEndpoint) -> str:
    request = urllib.request.Request(endpoint.url)
    if not endpoint.url.startswith("file:"):
        wanted = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
        request.data = urlencode(wanted).encode()
        request.add_header("Authorization", f"Basic {_credentials(endpoint)}")
    with urllib.request.urlopen(request, timeout=FETCH_SECONDS_MAX) as answer:
        read: bytes = answer.read(ANSWER_BYTES_MAX + 1)
    if len(read) > ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    return read.decode()


def _credentials(endpoint: TokenEndpoint) -> str:
    """As they are, though RFC 6749 would have them form-encoded: so does Kafka, and issuers are set up for that."""
    return base64.b64encode(f"{endpoint.client_id}:{endpoint.client_secret}".encode()).decode()


def _token_in(answer: str) -> str:
    found = json.loads(answer)
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str) or not token:
        raise ValueError("the answer has no access_token")
    return token
