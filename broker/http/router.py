"""Which function answers which method and path."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from tidemark.broker.http.messages import HttpRequest, HttpResponse, StreamedResponse, path_segments
from tidemark.broker.http.problems import Problem

Answer = HttpResponse | StreamedResponse
HttpHandler = Callable[[HttpRequest], Coroutine[Any, Any, Answer]]


class HttpRoute(NamedTuple):
    method: str
    path: str  # `/topics/{topic}`: a name in braces stands for one segment
    handle: HttpHandler
    is_open: bool = False  # to whoever asks, also before this node serves: health
    query: tuple[str, ...] | None = None  # the names that a query may have; None: whatever it likes
    has_head: bool = True  # a GET that changes something has none

    @property
    def methods(self) -> tuple[str, ...]:
        return ("GET", "HEAD") if self.method == "GET" and self.has_head else (self.method,)


class Router:
    def __init__(self) -> None:
        self._routes: dict[int, list[tuple[list[str], HttpRoute]]] = {}  # by the number of segments
        self.routes: list[HttpRoute] = []

    def add(self, *routes: HttpRoute) -> None:
        self.routes += routes
        for route in routes:
            segments = route.path.split("/")[1:]
            self._routes.setdefault(len(segments), []).append((segments, route))

    def find(self, request: HttpRequest) -> HttpRoute:
        """The route, with `request.path_values` filled in. Raises Problem."""
        asked = path_segments(request.path)
        allowed: list[str] = []
        for segments, route in self._routes.get(len(asked), ()):
            values = _match(segments, asked)
            if values is None:
                continue
            if request.method in route.methods:
                request.path_values = values
                return route
            allowed += route.methods
        if not allowed:
            raise Problem(404, "RESOURCE_NOT_FOUND", f"There is nothing at {request.path[:200]}.")
        methods = ", ".join(sorted(allowed))
        raise Problem(
            405,
            "INVALID_REQUEST",
            f"{request.method} is not possible here, only {methods}.",
            headers=(("Allow", methods),),
        )


def check_query(route: HttpRoute, request: HttpRequest) -> None:
    """A misspelt name is an error, not silence. Raises Problem."""
    if route.query is None or "?" not in request.target:
        return
    for name in request.query:
        if name not in route.query:
            raise Problem(400, "INVALID_REQUEST", f"There is no {name[:100]!r} in a query here.")


def _match(segments: list[str], asked: list[str]) -> dict[str, str] | None:
    values = {}
    for expected, found in zip(segments, asked, strict=True):
        if expected.startswith("{"):
            if not found:
                return None
            values[expected[1:-1]] = found
        elif expected != found:
            return None
    return values
