"""`/metrics`, for Prometheus; with `?clients=1`, what each client uses is counted from then on, for half a minute."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.http.messages import HttpRequest, HttpResponse
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.metrics.registry import Metrics

Check = Callable[[HttpRequest], None]  # raises Problem


def metrics_route(metrics: Metrics, *, may_see: Check) -> HttpRoute:
    async def scrape(request: HttpRequest) -> HttpResponse:
        may_see(request)
        if "clients" in request.query:
            metrics.watch_clients()
        wants_open = "application/openmetrics-text" in request.headers.get("accept", "")
        content_type, text = await metrics.exposition(open_metrics=wants_open)
        return HttpResponse(body=text, content_type=content_type)

    return HttpRoute("GET", "/metrics", scrape)
