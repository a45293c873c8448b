"""One version of one API, ready to serve: its codecs, its handler, and how its answers become bytes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from types import GeneratorType
from typing import Any

from tidemark.broker.core.deferred import Answer
from tidemark.broker.core.errors import CloseConnection, clipped
from tidemark.broker.core.registry import NO_ANSWER, Call, Handler, Route
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.logs.events import about
from tidemark.broker.server.connection import Encoded
from tidemark.broker.server.error_texts import clip_error_texts
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import put_response_start, response_room
from tidemark.protocol.schema import EncodeError, api, codec, fields_of

log = logging.getLogger(__name__)


class BoundApi:
    __slots__ = (
        "answer",
        "ask",
        "decode",
        "encode",
        "flexible",
        "handle",
        "head",
        "in_parts",
        "name",
        "quick",
        "response",
        "tally",
        "unmeasured",
        "version",
    )

    def __init__(
        self,
        route: Route,
        version: int,
        handle: Handler,
        quick: Callable[[bytearray, int, Call], Answer[Any]] | None = None,
    ) -> None:
        self.ask = codec(route.request, version)
        self.answer = codec(route.response, version)
        self.encode: Callable[[Any, bytearray], Any]
        self.name = route.name
        self.version = version
        self.response = route.response
        self.handle = handle
        self.quick = quick
        self.decode = self.ask.decode
        self.encode = self.answer.encode_parts if route.in_parts else self.answer.encode
        self.in_parts = route.in_parts
        self.flexible = version in api(route.request).flexible
        self.head = response_room(route.response, version)
        self.unmeasured = 0  # how many requests until one is measured; at 0 and below, none is (`MeasuredDispatcher`)
        self.tally: Callable[[Any], None] | None = None  # told of every answer before it is encoded


def fields_of_failure(bound: BoundApi, connection: Any, correlation_id: int | None = None) -> dict[str, dict[str, Any]]:
    """For the log. A client of another node, or one that is none of Kafka's, has less to tell."""
    known = getattr(connection, "circumstances", {})
    return about(**known, api=bound.name, api_version=bound.version, correlation_id=correlation_id)


def guarded(bound: BoundApi, connection: Any, response: Job[Any]) -> Job[Any]:
    """A handler that works in slices: what it comes to, or our own fault."""
    try:
        return (yield from response)
    except CloseConnection:
        raise
    except Exception:
        _log_failure(bound, connection)
        return failure(bound)


def handled(bound: BoundApi, request: Any, call: Call) -> Answer[Any]:
    try:
        response = bound.handle(request, call)
    except CloseConnection:
        raise
    except Exception:
        _log_failure(bound, call.connection)
        return failure(bound)
    return guarded(bound, call.connection, response) if type(response) is GeneratorType else response


def _log_failure(bound: BoundApi, connection: Any) -> None:
    extra = fields_of_failure(bound, connection)
    log.exception("%s v%d from %s failed", bound.name, bound.version, connection.peer, extra=extra)


def encode(bound: BoundApi, correlation_id: int, response: Any) -> Encoded:
    """Raises CloseConnection for a failure that can be neither encoded nor answered."""
    if response is NO_ANSWER:
        return None
    if bound.tally is not None:
        bound.tally(response)
    out = bytearray(bound.head)
    try:
        encoded: list[Any] | None = bound.encode(response, out)
    except EncodeError as error:
        out = encode_mended(bound, response, error)
        encoded = [out]
    return _finished(out, encoded, correlation_id)


def encode_in_slices(bound: BoundApi, correlation_id: int, response: Any) -> Job[Encoded]:
    """As `encode`, for an answer that may be large."""
    if response is NO_ANSWER:
        return None
    if bound.tally is not None:
        bound.tally(response)
    out = bytearray(bound.head)
    encoded: list[Any] | None = None
    try:
        if bound.in_parts:
            encoded = yield from bound.answer.encode_parts_slices(response, out)
        else:
            yield from bound.answer.encode_slices(response, out)
    except EncodeError as error:
        out = encode_mended(bound, response, error)
        encoded = [out]
    return _finished(out, encoded, correlation_id)


def _finished(out: bytearray, encoded: list[Any] | None, correlation_id: int) -> Encoded:
    parts = (out,) if encoded is None else encoded
    put_response_start(out, 0, sum(map(len, parts)) - 4, correlation_id)
    return parts


def encode_mended(bound: BoundApi, response: Any, error: EncodeError) -> bytearray:
    """An answer that does not fit its wire types: with its error texts clipped if that helps, else as our own fault."""
    log.error("%s v%d: the answer cannot be encoded: %s", bound.name, bound.version, clipped(str(error)))
    if clip_error_texts(response):
        out = bytearray(bound.head)
        with contextlib.suppress(EncodeError):
            bound.answer.encode(response, out)
            return out
    out = bytearray(bound.head)
    bound.answer.encode(failure(bound), out)
    return out


def failure(bound: BoundApi) -> object:
    """Our own fault, after it was logged: an error where the response has a place for one, or a hang-up."""
    place = fields_of(bound.response).get("error_code")
    if place is None or bound.version not in place.versions:
        raise CloseConnection(f"{bound.name} v{bound.version} failed here; see the log")
    return bound.response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
