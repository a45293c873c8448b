"""Spans of requests for OpenTelemetry (tidemark.traces.otlp.endpoint), which follow the `traceparent` of records.

Loaded only where it is switched on; then the quick way of a request is left to those that are not traced. Of a Produce
the first records are looked at: if they belong to one trace, the request's span is part of it, if to several, it links
to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, get_current_span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidemark.broker.config import BrokerConfig
from tidemark.broker.config.collectors import collector
from tidemark.broker.core.answers import when_answered
from tidemark.broker.core.deferred import Answer
from tidemark.broker.core.registry import Call, Handler, Route
from tidemark.environment import new_random
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import InvalidBatch, iter_records

KEY: Final = "tidemark.traces.otlp.endpoint"
RECORDS_MAX: Final = 100  # of a request, that are looked at for their traces
LINKS_MAX: Final = 16
PAYLOAD_BYTES_MAX: Final = 1 << 20  # larger batches are not decompressed for it
HEADER_BYTES_MAX: Final = 512
CLOSE_SECONDS_MAX: Final = 3.0
TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"

T = TypeVar("T")
Quick = Callable[[bytearray, int, Call], Answer[Any]]


class RequestTraces:
    def __init__(self, config: BrokerConfig, *, exporter: Any = None) -> None:
        """`exporter`: where spans go, if not to the endpoint of the settings. Raises ConfigError."""
        named = {"service.name": "tidemark", "service.instance.id": str(config.node_id)}
        self._provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        if exporter is None:
            where = collector(config.tidemark_traces_otlp_endpoint or "", key=KEY, path="/v1/traces")
            exporter = OTLPSpanExporter(endpoint=where.geturl())
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("tidemark")
        self._ratio = config.tidemark_traces_sample_ratio
        self._random = new_random()
        self.propagator = TraceContextTextMapPropagator()

    async def close(self) -> None:
        """What is left is sent, unless nobody takes it."""
        closing = asyncio.get_running_loop().run_in_executor(None, self._provider.shutdown)
        await asyncio.wait([closing], timeout=CLOSE_SECONDS_MAX)

    def is_traced(self) -> bool:
        """Whether the next request is."""
        return self._ratio >= 1.0 or self._random.random() < self._ratio

    def quick(self, quick: Quick | None) -> Quick | None:
        """The quick way, for requests that are not traced: others take the handler's."""
        if quick is None:
            return None

        def either(frame: bytearray, position: int, call: Call) -> Answer[Any]:
            call.is_traced = self.is_traced()
            return None if call.is_traced else quick(frame, position, call)

        return either

    def handler(self, route: Route, handle: Handler, *, has_quick: bool) -> Handler:
        """`has_quick`: it was decided on the quick way whether the request is traced."""

        def traced(request: Any, call: Call) -> Answer[Any]:
            if not (call.is_traced if has_quick else self.is_traced()):
                return handle(request, call)
            span = self._begin(route, request, call)
            try:
                return when_answered(handle(request, call), partial(_end, span))
            except BaseException as error:
                span.set_status(StatusCode.ERROR, type(error).__name__)
                span.end()
                raise

        return traced

    def _begin(self, route: Route, request: Any, call: Call) -> Span:
        connection = call.connection
        attributes = {
            "rpc.system": "kafka",
            "rpc.method": route.name,
            "messaging.system": "kafka",
            "messaging.client.id": call.client_id or "",
            "network.peer.address": getattr(connection, "peer", ""),
            "tidemark.api_version": call.version,
            "tidemark.listener": getattr(connection, "listener", ""),
        }
        contexts: list[Any] = []
        if route.name == "Produce":
            if len(request.topic_data) == 1 and request.topic_data[0].name:
                attributes["messaging.destination.name"] = request.topic_data[0].name
            contexts = self._contexts(request)
        parent = set_span_in_context(contexts[0]) if len(contexts) == 1 else None
        links = [Link(each.get_span_context()) for each in contexts] if len(contexts) > 1 else []
        return self.tracer.start_span(
            route.name, context=parent, kind=SpanKind.SERVER, attributes=attributes, links=links
        )

    def _contexts(self, request: Any) -> list[Any]:
        """The spans that the first records of a request belong to."""
        found: dict[str, Any] = {}
        for carrier in islice(_carriers(request), RECORDS_MAX):
            parent = carrier.get(TRACE_PARENT)
            if parent is None or parent in found or len(found) == LINKS_MAX:
                continue
            span = get_current_span(self.propagator.extract(carrier, context={}))
            if span.get_span_context().is_valid:
                found[parent] = span
        return list(found.values())


def _carriers(request: Any) -> Iterator[dict[str, str]]:
    """The headers about traces of each record."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            try:
                for record in iter_records(partition.records or b"", limit_bytes=PAYLOAD_BYTES_MAX):
                    yield {
                        name: value[:HEADER_BYTES_MAX].decode("ascii", errors="replace")
                        for name, value in record.headers
                        if name in (TRACE_PARENT, TRACE_STATE) and value is not None
                    }
            except InvalidBatch:
                continue  # the handler says what is wrong with it


def _end(span: Span, response: T) -> T:
    code = getattr(response, "error_code", 0)
    if code:
        name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
        span.set_attribute("error.type", name)
        span.set_status(StatusCode.ERROR, name)
    span.end()
    return response
