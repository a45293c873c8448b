"""Spans of HTTP requests for OpenTelemetry, which follow the `traceparent` of a request.

A client that says which trace its request belongs to finds it again in the headers of the records that it produced: as
the parent of whoever reads them. Loaded only where traces are switched on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, get_current_span, set_span_in_context

from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.router import Answer
from tidemark.broker.server.traces import HEADER_BYTES_MAX, TRACE_PARENT, TRACE_STATE, RequestTraces

FAILED: Final = 500  # from this status on it is the broker's fault, and the span says so


class HttpTraces:
    def __init__(self, traces: RequestTraces) -> None:
        self._traces = traces

    async def traced(self, request: HttpRequest, path: str, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Await `work`, as a span where this request is traced. Of a stream it ends where the records begin."""
        given = {name: request.headers[name] for name in (TRACE_PARENT, TRACE_STATE) if name in request.headers}
        carrier = {name: value for name, value in given.items() if len(value) <= HEADER_BYTES_MAX}
        context = self._traces.propagator.extract(carrier, context=Context())
        is_followed = get_current_span(context).get_span_context().is_valid
        if not self._traces.is_traced():
            self._pass_on(request, context if is_followed else None)
            return await work
        span = self._begin(request, path, context)
        self._pass_on(request, set_span_in_context(span) if is_followed else None)
        try:
            answer = await work
        except asyncio.CancelledError:  # its client is gone, and gets no status
            span.set_attribute("error.type", "CancelledError")
            span.end()
            raise
        except Exception as error:
            _end(span, error.status if isinstance(error, Problem) else FAILED, type(error).__name__)
            raise
        _end(span, answer.status)
        return answer

    def _pass_on(self, request: HttpRequest, context: Context | None) -> None:
        if context is not None:
            carrier: dict[str, str] = {}
            self._traces.propagator.inject(carrier, context)
            request.record_headers = tuple((name, value.encode()) for name, value in carrier.items())

    def _begin(self, request: HttpRequest, path: str, context: Context) -> Span:
        attributes = {
            "http.request.method": request.method,
            "http.route": path,
            "url.path": request.path[:HEADER_BYTES_MAX],
            "url.scheme": "https" if request.is_encrypted else "http",
            "client.address": request.host,
            "user_agent.original": request.client_id,
            "tidemark.listener": request.listener,
        }
        if (topic := request.path_values.get("topic")) is not None:
            attributes |= {"messaging.system": "kafka", "messaging.destination.name": topic[:HEADER_BYTES_MAX]}
        return self._traces.tracer.start_span(
            f"{request.method} {path}", context=context, kind=SpanKind.SERVER, attributes=attributes
        )


def _end(span: Span, status: int, failure: str | None = None) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= FAILED:
        span.set_attribute("error.type", failure or str(status))
        span.set_status(StatusCode.ERROR, failure)
    span.end()
