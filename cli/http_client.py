"""Questions to a node's HTTP listener, of the few kinds that commands have."""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.request
from typing import Any, Final

from tidemark.failure import CommandFailed, ExitCode

DEFAULT_URL: Final = "http://127.0.0.1:8082"
ANSWER_BYTES_MAX: Final = 16 << 20


def default_url() -> str:
    return os.environ.get("TIDEMARK_HTTP") or DEFAULT_URL


def get_json(url: str, path: str, *, seconds_max: float) -> tuple[int, Any]:
    """The status and the document. Raises CommandFailed if there is none."""
    status, body = get(url, path, seconds_max=seconds_max)
    try:
        return status, json.loads(body)
    except ValueError as error:
        raise CommandFailed(f"{url} does not answer: {error}.", code=ExitCode.NOT_REACHABLE) from error


def get(url: str, path: str, *, seconds_max: float, bytes_max: int = ANSWER_BYTES_MAX) -> tuple[int, bytes]:
    """The status and the body. Raises CommandFailed if nobody answers."""
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"{url} is no address of an HTTP listener, such as {DEFAULT_URL}.", code=ExitCode.USAGE)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a node is asked itself
    try:
        try:
            with opener.open(url.rstrip("/") + path, timeout=seconds_max) as answer:
                return answer.status, answer.read(bytes_max)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read(bytes_max)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CommandFailed(f"{url} does not answer: {reason}.", code=ExitCode.NOT_REACHABLE) from error
