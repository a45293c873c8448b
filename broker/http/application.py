"""From a request to the function that answers it: is this node ready for it, who asks, which route is it?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidemark.broker.core.principal import Principal
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.router import Answer, Router

Authenticate = Callable[[HttpRequest], Awaitable[Principal]]


async def by_connection(request: HttpRequest) -> Principal:
    """Who the connection says: a client's certificate, or nobody in particular."""
    return request.principal


class HttpApplication:
    def __init__(self, router: Router) -> None:
        self.router = router
        self.authenticate: Authenticate = by_connection
        self.is_serving = False  # set by the node, when everything behind the routes is there

    async def __call__(self, request: HttpRequest) -> Answer:
        route = self.router.find(request)
        if not route.is_open:
            if not self.is_serving:
                raise Problem(503, "BROKER_NOT_AVAILABLE", "This node is starting, or stopping.")
            request.principal = await self.authenticate(request)
        return await route.handle(request)
