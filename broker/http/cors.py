"""Pages of other origins in a browser: they get at answers only where `http.cors.allowed.origins` names theirs.

Credentials that a browser keeps (cookies, a remembered password) are never asked for; a page sends its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.broker.http.messages import HttpRequest, HttpResponse

Headers = tuple[tuple[str, str], ...]

ANY: Final = "*"
PREFLIGHT: Final = (
    ("Access-Control-Allow-Methods", "GET, POST, PUT, PATCH, DELETE"),
    ("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID"),
    ("Access-Control-Max-Age", "600"),
)
EXPOSED: Final = ("Access-Control-Expose-Headers", "Location, Retry-After, WWW-Authenticate")


class Cors:
    def __init__(self, origins: Sequence[str]) -> None:
        self._origins = frozenset(origin.lower() for origin in origins)

    def headers(self, request: HttpRequest) -> Headers:
        """What an answer says about who may read it. Nothing at all where no origin is allowed."""
        if not self._origins:
            return ()
        origin = request.headers.get("origin")
        if origin is None or (ANY not in self._origins and origin.lower() not in self._origins):
            return (("Vary", "Origin"),)
        return ("Vary", "Origin"), ("Access-Control-Allow-Origin", origin), EXPOSED

    def preflight(self, request: HttpRequest) -> HttpResponse | None:
        """The answer to a browser that asks before it sends; None to whoever else asks for OPTIONS."""
        if not self._origins or request.method != "OPTIONS" or "access-control-request-method" not in request.headers:
            return None
        is_allowed = len(self.headers(request)) > 1
        return HttpResponse(status=204, headers=PREFLIGHT if is_allowed else ())
