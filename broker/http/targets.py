"""Where a request says that it goes: its target, and the host.

A target may be whole (`http://host/path`, as proxies get it): then its host counts, and not the header's
(RFC 9112, 3.2.2).
"""

from __future__ import annotations

import re
from typing import Final

from tidemark.broker.http.problems import Problem

_WHOLE: Final = re.compile(rb"(https?)://([^/?#]*)(.*)", re.IGNORECASE)
_HOST: Final = re.compile(r"(\[[^\[\]/?#@\\\s]+\]|[^\[\]:/?#@\\\s]*)(:[0-9]*)?")


def origin_form(target: bytes, headers: dict[str, str], *, is_encrypted: bool) -> bytes:
    """Path and query of a target; the host that it names is put in the header's place. Raises Problem."""
    whole = None if target.startswith(b"/") else _WHOLE.fullmatch(target)
    if whole is None:
        return target
    if (whole[1].lower() == b"https") != is_encrypted:
        raise Problem(421, "INVALID_REQUEST", "What the target names is not served on this connection.")
    if not whole[2]:
        raise _no_host("The target names no host.")
    headers["host"] = whole[2].decode("latin-1")
    return whole[3] if whole[3].startswith(b"/") else b"/" + whole[3]


def check_host(headers: dict[str, str], version: str) -> None:
    """Raises Problem: who is between the client and us would have to guess for whom a request is."""
    host = headers.get("host")
    if host is None:
        if version != "1.0":
            raise _no_host("A request of HTTP/1.1 has a host.")
    elif not _HOST.fullmatch(host):
        raise _no_host("What the request has for its host is none.")


def _no_host(told: str) -> Problem:
    return Problem(400, "INVALID_REQUEST", told)
