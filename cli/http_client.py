"""Questions to a node's HTTP listener, of the few kinds that commands have."""

from __future__ import annotations

import base64
import http.client
import json
import os
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Final

from tidemark.client_security import ClientSecurity
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from tidemark.protocol.sasl.client import Login

DEFAULT_URL: Final = "http://127.0.0.1:8082"
ANSWER_BYTES_MAX: Final = 16 << 20


def default_url() -> str:
    return os.environ.get("TIDEMARK_HTTP") or DEFAULT_URL


def get_json(url: str, path: str, *, security: ClientSecurity, seconds_max: float) -> tuple[int, Any]:
    """The status and the document. Raises CommandFailed if there is none."""
    status, body = get(url, path, security=security, seconds_max=seconds_max)
    try:
        return status, json.loads(body)
    except ValueError as error:
        raise CommandFailed(f"{url} does not answer: {error}.", code=ExitCode.NOT_REACHABLE) from error


def get(
    url: str,
    path: str,
    *,
    security: ClientSecurity,
    seconds_max: float,
    bytes_max: int = ANSWER_BYTES_MAX,
    logs_in: bool = False,
) -> tuple[int, bytes]:
    """The status and the body. `logs_in`: who asks is told, where that is known; health is for everybody, and told no
    password. Raises CommandFailed if nobody answers."""
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"{url} is no address of an HTTP listener, such as {DEFAULT_URL}.", code=ExitCode.USAGE)
    opener = _opener(security)
    try:
        try:
            asked = urllib.request.Request(url.rstrip("/") + path)
            if logs_in and security.login is not None:
                asked.add_unredirected_header("Authorization", _basic(security.login))
            with opener.open(asked, timeout=seconds_max) as answer:
                return answer.status, answer.read(bytes_max)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read(bytes_max)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CommandFailed(f"{url} does not answer: {reason}.", code=ExitCode.NOT_REACHABLE) from error


def _opener(security: ClientSecurity) -> urllib.request.OpenerDirector:
    itself = urllib.request.ProxyHandler({})  # a node is asked itself
    if security.context is None:
        return urllib.request.build_opener(itself)
    return urllib.request.build_opener(itself, urllib.request.HTTPSHandler(context=security.context))


def _basic(login: Login) -> str:
    return "Basic " + base64.b64encode(f"{login.user}:{login.password}".encode()).decode()
