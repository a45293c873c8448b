"""`/metrics`, for Prometheus; with `?clients=1`, what each client uses is counted from then on, for half a minute."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemark.broker.http.calls import GoOn
from tidemark.broker.http.messages import HttpRequest, HttpResponse
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.metrics.registry import Metrics

Check = Callable[[HttpRequest], None]  # raises Problem


def metrics_route(metrics: Metrics, *, may_see: Check, go_on: GoOn) -> HttpRoute:
    """`go_on`: sets a future's result when it is its turn."""

    async def scrape(request: HttpRequest) -> HttpResponse:
        may_see(request)
        if "clients" in request.query:
            metrics.watch_clients()
        wants_open = "application/openmetrics-text" in request.headers.get("accept", "")
        content_type, text = await metrics.exposition(open_metrics=wants_open)
        # Others may have waited for the same text, which may be megabytes: one of them sends it in each turn.
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        go_on(turn, None)
        await turn
        return HttpResponse(body=text, content_type=content_type)

    return HttpRoute("GET", "/metrics", scrape)
