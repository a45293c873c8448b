"""Questions to a node's HTTP listener, of the few kinds that commands have."""

from __future__ import annotations

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
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"{url} is no address of an HTTP listener, such as {DEFAULT_URL}.", code=ExitCode.USAGE)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a node is asked itself
    try:
        try:
            with opener.open(url.rstrip("/") + path, timeout=seconds_max) as answer:
                return answer.status, json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.loads(refused.read(ANSWER_BYTES_MAX))
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CommandFailed(f"{url} does not answer: {reason}.", code=ExitCode.NOT_REACHABLE) from error
