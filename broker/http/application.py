"""From a request to the function that answers it: is this node ready for it, who asks, which route is it?"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidemark.broker.http.cors import Cors
from tidemark.broker.http.messages import Authenticate, HttpRequest, by_connection
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.request_log import HttpRequestLog
from tidemark.broker.http.router import Answer, HttpRoute, Router, check_query
from tidemark.broker.http.waits import Waits, begin
from tidemark.broker.metrics.http import NOWHERE, HttpRequests
from tidemark.environment import monotonic

if TYPE_CHECKING:
    from tidemark.broker.http.traces import HttpTraces

FAILED: Final = 500
GONE: Final = -1  # nobody was told a status


def starting_or_stopping() -> Problem:
    return Problem(503, "BROKER_NOT_AVAILABLE", "This node is starting, or stopping.")


class HttpApplication:
    def __init__(self, router: Router, cors: Cors) -> None:
        self.router = router
        self.authenticate: Authenticate = by_connection
        self.quotas: HttpQuotas | None = None
        self.traces: HttpTraces | None = None  # where it is switched on
        self.requests = HttpRequests()
        self.log: HttpRequestLog | None = None
        self.is_serving = False  # set by the node, when everything behind the routes is there
        self._cors = cors

    async def __call__(self, request: HttpRequest) -> Answer:
        headers = self._cors.headers(request)
        if not headers:
            return await self._answer(request)
        try:
            answer = self._cors.preflight(request) or await self._answer(request)
        except Problem as problem:
            problem.headers += headers
            raise
        return replace(answer, headers=answer.headers + headers)

    async def _answer(self, request: HttpRequest) -> Answer:
        """Counted, whatever comes of it; but not if the client is gone before."""
        begun, waits = monotonic(), begin()
        route: HttpRoute | None = None
        status = FAILED
        try:
            route = self._route_of(request)
            answer = await self._answer_by(route, request)
            status = answer.status
        except Problem as problem:
            status = problem.status
            raise
        except asyncio.CancelledError:
            status = GONE
            raise
        finally:
            if status != GONE:
                self._count(request, route, status, monotonic() - begun, waits)
        return answer

    def _count(self, request: HttpRequest, route: HttpRoute | None, status: int, seconds: float, waits: Waits) -> None:
        self.requests.answered(NOWHERE if route is None else (route.method, route.path), status, seconds)
        if self.log is not None and route is not None and not route.is_open:  # health is asked for all the time
            as_asked = route.query is not None and "wait_ms" in route.query
            self.log.answered(request, f"{route.method} {route.path}", status, seconds, waits, waits_as_asked=as_asked)

    async def _answer_by(self, route: HttpRoute, request: HttpRequest) -> Answer:
        if self.traces is None or route.is_open:  # health is asked for all the time
            return await self._routed(request, route)
        return await self.traces.traced(request, route.path, self._routed(request, route))

    def _route_of(self, request: HttpRequest) -> HttpRoute:
        """Raises Problem. Of a node that starts, most routes are not there yet: nobody is told that there are none."""
        try:
            return self.router.find(request)
        except Problem:
            if self.is_serving:
                raise
            raise starting_or_stopping() from None

    async def _routed(self, request: HttpRequest, route: HttpRoute) -> Answer:
        if not route.is_open:
            if not self.is_serving:
                raise starting_or_stopping()
            request.authenticate = self.authenticate
            request.principal = await self.authenticate(request)
        check_query(route, request)
        if self.quotas is None or not self.quotas.counts_time or route.is_open:
            return await route.handle(request)
        self.quotas.admit(request)
        return await self.quotas.timed(request, route.handle(request))
