"""HTTP requests that took long, and all of them while `tidemark.requests` is at DEBUG: as those of Kafka's clients."""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidemark.broker.core.limited_log import LimitedLog
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.waits import Waits
from tidemark.broker.logs.events import about
from tidemark.environment import monotonic

log = logging.getLogger("tidemark.requests")


class HttpRequestLog:
    def __init__(self, slow_ms: Callable[[], int]) -> None:
        """`slow_ms`: from which on a request is slow; -1: none is."""
        self._slow_ms = slow_ms
        self._limited = LimitedLog(log, clock=monotonic)

    def answered(
        self, request: HttpRequest, api: str, status: int, seconds: float, waits: Waits, *, waits_as_asked: bool
    ) -> None:
        slow_ms = self._slow_ms()
        is_slow = not waits_as_asked and 0 <= slow_ms <= seconds * 1000
        if not is_slow and not log.isEnabledFor(logging.DEBUG):
            return
        total_ms = round(seconds * 1000, 3)
        remote_ms = min(round(waits.seconds * 1000, 3), total_ms)
        extra = about(
            listener=request.listener,
            client=request.host,
            client_id=request.client_id,
            principal=str(request.principal),
            api=api,
            status=status,
            topic=request.path_values.get("topic"),
            group=request.path_values.get("group"),
            total_ms=total_ms,
            local_ms=round(total_ms - remote_ms, 3),
            remote_ms=remote_ms,
        )
        if is_slow:
            text = "slow: %s took %.0f ms, %.0f of them here"
            self._limited.warning(text, api, total_ms, total_ms - remote_ms, extra=extra)
        else:
            log.debug("%s took %.3f ms", api, total_ms, extra=extra)
