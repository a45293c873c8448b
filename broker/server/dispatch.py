"""From a frame to its handler and back: header, decode, call, encode, answer in order.

The first four bytes of a request are its API key and version; read as one number they find everything else in one
look-up. What is behind that number (codecs, header form, the bound handler) is made on first use.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidemark.broker.core.api_table import ListenerKind, served_on
from tidemark.broker.core.deferred import Answer, Deferred
from tidemark.broker.core.errors import CloseConnection, clipped
from tidemark.broker.core.registry import NO_ANSWER, Call, Handler, Route, bind, find_route
from tidemark.broker.server.connection import Connection, Encoded
from tidemark.broker.server.error_texts import clip_error_texts
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import (
    API_VERSIONS_KEY,
    CLIENT_ID_AT,
    REQUEST_BYTES_MIN,
    put_response_start,
    read_client_id,
    request_start,
    response_room,
    skip_header_tags,
    split_selector,
)
from tidemark.protocol.schema import DecodeError, EncodeError, api, codec, fields_of

log = logging.getLogger(__name__)


class _Bound:
    """One version of one API, ready to serve."""

    __slots__ = ("decode", "encode", "flexible", "handle", "head", "in_parts", "name", "quick", "response", "version")

    def __init__(
        self,
        route: Route,
        version: int,
        handle: Handler,
        quick: Callable[[bytearray, int, Call], Answer[Any]] | None = None,
    ) -> None:
        answer = codec(route.response, version)
        self.encode: Callable[[Any, bytearray], Any]
        self.name = route.name
        self.version = version
        self.response = route.response
        self.handle = handle
        self.quick = quick
        self.decode = codec(route.request, version).decode
        self.encode = answer.encode_parts if route.in_parts else answer.encode
        self.in_parts = route.in_parts
        self.flexible = version in api(route.request).flexible
        self.head = response_room(route.response, version)


class Dispatcher:
    def __init__(self, services: Mapping[str, Callable[[], Any]], kind: ListenerKind = "broker") -> None:
        self._services = services
        self._kind = kind
        self._bound: dict[int, _Bound] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __call__(self, connection: Connection, frame: bytearray) -> None:
        if len(frame) < REQUEST_BYTES_MIN:
            raise CloseConnection(f"a request of {len(frame)} bytes is too short for a header: {_hex(frame)}")
        selector, correlation_id = request_start(frame)
        bound = self._bound.get(selector)
        if bound is None:
            bound = self._bind(selector, frame)
        if not frame.startswith(connection.client_id_field, CLIENT_ID_AT):
            _note_client_id(connection, frame)
        position = CLIENT_ID_AT + len(connection.client_id_field)
        call = connection.calls.get(selector)
        if call is None:
            call = connection.calls[selector] = Call(connection, bound.version, connection.client_id)
        try:
            if bound.flexible:
                position = skip_header_tags(frame, position)
            response: Answer[Any] = None if bound.quick is None else bound.quick(frame, position, call)
            if type(response) is bytearray:
                put_response_start(response, 0, len(response) - 4, correlation_id)
                connection.answer_whole(response)
                return
            if response is None:
                # librdkafka 2.16 sends a few bytes too many in some requests, and Kafka does not mind.
                request = bound.decode(memoryview(frame), position, True)
        except DecodeError as error:
            raise CloseConnection(f"{bound.name} v{bound.version} cannot be decoded: {error}; {_hex(frame)}") from None
        if response is None:
            try:
                response = bound.handle(request, call)
            except CloseConnection:
                raise
            except Exception:
                log.exception("%s v%d from %s failed", bound.name, bound.version, connection.peer)
                response = _failure(bound)
        if type(response) is bound.response:
            if bound.in_parts:
                connection.answer(_encode(bound, correlation_id, response))
                return
            out = bytearray(bound.head)
            try:
                bound.encode(response, out)
            except EncodeError as error:
                out = _encode_mended(bound, response, error)
            put_response_start(out, 0, len(out) - 4, correlation_id)
            connection.answer_whole(out)
        elif response is NO_ANSWER:
            connection.answer(None)
        else:
            self._answer_deferred(connection, bound, correlation_id, response)

    def _bind(self, selector: int, frame: bytearray) -> _Bound:
        key, version = split_selector(selector)
        route = find_route(key) if key in served_on(self._kind) else None
        if route is None:
            raise CloseConnection(f"API key {key} (version {version}) is not served here: {_hex(frame)}")
        if version not in route.versions:
            if key == API_VERSIONS_KEY:
                return self._unknown_api_versions(route)
            raise CloseConnection(f"{route.name} v{version} is not served, only {route.versions}")
        quick = None if route.quick is None else bind(route.quick, self._services)
        handle = bind(route.handle, self._services)
        if route.on_controller and "forwarding" in self._services:
            handle = self._services["forwarding"]().relay(route, version, handle)
        bound = self._bound[selector] = _Bound(route, version, handle, quick)
        return bound

    def _unknown_api_versions(self, route: Route) -> _Bound:
        # KIP-511: an unknown version of ApiVersions is answered in the oldest form, naming the versions we do know.
        bound = _Bound(route, 0, lambda _request, _call: _api_versions_hint(route))
        bound.decode = lambda _view, _position, _surplus: None
        bound.flexible = False
        return bound

    def _answer_deferred(
        self, connection: Connection, bound: _Bound, correlation_id: int, response: Answer[Any]
    ) -> None:
        deferred: Deferred[Encoded] = Deferred()
        connection.answer_deferred(deferred)
        if isinstance(response, Deferred):
            deferred.abandon = response.abandon
            response.then(
                lambda value: deferred.resolve(_encode(bound, correlation_id, value)),
                lambda error: _answer_failure(connection, bound, correlation_id, error, deferred),
            )
            return
        task = asyncio.ensure_future(self._finish(connection, bound, correlation_id, response, deferred))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self,
        connection: Connection,
        bound: _Bound,
        correlation_id: int,
        response: Awaitable[object],
        deferred: Deferred[Encoded],
    ) -> None:
        try:
            answer = _encode(bound, correlation_id, await response)
        except Exception as error:
            _answer_failure(connection, bound, correlation_id, error, deferred)
        else:
            deferred.resolve(answer)

    async def finish_tasks(self) -> None:
        """At shutdown: changes that were under way come to their end."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))


def _encode(bound: _Bound, correlation_id: int, response: object) -> Encoded:
    """Raises CloseConnection for what can be neither encoded nor told."""
    if response is NO_ANSWER:
        return None
    out = bytearray(bound.head)
    try:
        encoded: list[Any] | None = bound.encode(response, out)
    except EncodeError as error:
        out = _encode_mended(bound, response, error)
        encoded = [out]
    parts = (out,) if encoded is None else encoded
    put_response_start(out, 0, sum(map(len, parts)) - 4, correlation_id)
    return parts


def _encode_mended(bound: _Bound, response: object, error: EncodeError) -> bytearray:
    """An answer that does not fit its wire types: with its error texts clipped if that helps, else as our own fault."""
    log.error("%s v%d: the answer cannot be encoded: %s", bound.name, bound.version, clipped(str(error)))
    encode = codec(bound.response, bound.version).encode
    if clip_error_texts(response):
        out = bytearray(bound.head)
        with contextlib.suppress(EncodeError):
            encode(response, out)
            return out
    out = bytearray(bound.head)
    encode(_failure(bound), out)
    return out


def _answer_failure(
    connection: Connection, bound: _Bound, correlation_id: int, error: Exception, deferred: Deferred[Encoded]
) -> None:
    """A request that fails after its handler has returned is answered like one that fails in it."""
    try:
        if isinstance(error, CloseConnection):
            raise error
        log.error("%s v%d from %s failed", bound.name, bound.version, connection.peer, exc_info=error)
        answer = _encode(bound, correlation_id, _failure(bound))
    except CloseConnection as reason:
        connection.fail(str(reason))
    else:
        deferred.resolve(answer)


def _failure(bound: _Bound) -> object:
    """Our own fault, after it was logged: an error where the response has a place for one, or a hang-up."""
    place = fields_of(bound.response).get("error_code")
    if place is None or bound.version not in place.versions:
        raise CloseConnection(f"{bound.name} v{bound.version} failed here; see the log")
    return bound.response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)


def _api_versions_hint(route: Route) -> object:
    from tidemark.protocol.messages.api_versions import ApiVersion

    hint = ApiVersion(api_key=route.key, min_version=route.versions.first, max_version=route.versions.last)
    return route.response(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[hint])


def _note_client_id(connection: Connection, frame: bytearray) -> None:
    """A client repeats its id in every request: remember its bytes, so that they are only compared from now on."""
    try:
        connection.client_id, connection.client_id_field = read_client_id(frame)
    except DecodeError as error:
        raise CloseConnection(f"{error}: {_hex(frame)}") from None
    connection.calls.clear()


def _hex(frame: bytearray) -> str:
    start = bytes(frame[:24])
    return f"it begins {start!r}"
