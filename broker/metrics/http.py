"""HTTP requests by route: how many, with which status, how long until they were answered."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tidemark.broker.core.histogram import Histogram
from tidemark.broker.metrics.exposition import Collected, labels
from tidemark.broker.metrics.metric import Kind, Metric

HTTP_REQUESTS: Final = Metric(
    name="tidemark_http_requests",
    kind=Kind.COUNTER,
    labels=("method", "path", "status"),
    help="HTTP requests that were answered, by route. What leads nowhere has an empty path.",
)
HTTP_SECONDS: Final = Metric(
    name="tidemark_http_request_seconds",
    kind=Kind.HISTOGRAM,
    labels=("method", "path"),
    help="From an HTTP request's turn to its answer, with what it waited for as it was asked to; of a stream until its"
    " records begin.",
)
NOWHERE: Final = ("", "")


class HttpRequests:
    """What was asked so far. Routes are few, and so are statuses."""

    def __init__(self) -> None:
        self.statuses: Counter[tuple[str, str, int]] = Counter()
        self.seconds: dict[tuple[str, str], Histogram] = {}

    def answered(self, route: tuple[str, str], status: int, seconds: float) -> None:
        self.statuses[*route, status] += 1
        found = self.seconds.get(route)
        if found is None:
            found = self.seconds[route] = Histogram()
        found.observe(seconds)


class HttpMetrics:
    METRICS: Final = (HTTP_REQUESTS, HTTP_SECONDS)

    def __init__(self, requests: HttpRequests) -> None:
        self._requests = requests

    def collect(self) -> Collected:
        counted = [
            (labels(method=method, path=path, status=status), count)
            for (method, path, status), count in list(self._requests.statuses.items())
        ]
        yield
        took = [
            (labels(method=method, path=path), each) for (method, path), each in list(self._requests.seconds.items())
        ]
        return [(HTTP_REQUESTS, counted), (HTTP_SECONDS, took)]
