"""`/livez` and `/readyz`: does the process answer, and should it be sent clients?"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.router import HttpRoute

Check = Callable[[], str | None]  # what is wrong, or None


class Health:
    def __init__(self, checks: Mapping[str, Check], *, node_id: int) -> None:
        self._checks = checks
        self._node_id = node_id

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/livez", self._live, is_open=True),
            HttpRoute("GET", "/readyz", self._ready, is_open=True),
        ]

    def document(self) -> tuple[bool, dict[str, object]]:
        found = {name: check() for name, check in self._checks.items()}
        is_ready = not any(found.values())
        return is_ready, {
            "status": "ready" if is_ready else "not ready",
            "node_id": self._node_id,
            "checks": {name: reason or "ok" for name, reason in found.items()},
        }

    async def _live(self, _request: HttpRequest) -> HttpResponse:
        # That it is answered says it all: the event loop turns.
        return await json_response({"status": "live", "node_id": self._node_id})

    async def _ready(self, _request: HttpRequest) -> HttpResponse:
        is_ready, document = self.document()
        return await json_response(document, status=200 if is_ready else 503)
