"""From a frame to its handler and back: header, decode, call, encode, answer in order.

The first four bytes of a request are its API key and version; read as one number they find everything else in one
look-up. What is behind that number (codecs, header form, the bound handler) is made on first use.

Large requests, and handlers that are generators, are worked on in slices (`core/sliced_work`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.core.api_table import ListenerKind, served_on
from tidemark.broker.core.deferred import Answer, Deferred, awaited
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.core.registry import NO_ANSWER, Call, Handler, Route, bind, find_route
from tidemark.broker.core.sliced_work import INTERRUPTED, Job, SlicedWork
from tidemark.broker.quotas.gate import Gate
from tidemark.broker.server.bound_api import (
    BoundApi,
    encode,
    encode_in_slices,
    encode_mended,
    failure,
    fields_of_failure,
    handled,
)
from tidemark.broker.server.connection import Connection, Encoded
from tidemark.broker.server.large_messages import free_slowly, hold_elements
from tidemark.broker.server.request_log import RequestLog
from tidemark.broker.server.timed_answer import TimedAnswer
from tidemark.environment import current, monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.headers import (
    API_VERSIONS_KEY,
    CLIENT_ID_AT,
    REQUEST_BYTES_MIN,
    put_response_start,
    read_client_id,
    request_start,
    skip_header_tags,
    split_selector,
)
from tidemark.protocol.schema import DecodeError, EncodeError

if TYPE_CHECKING:
    from tidemark.broker.quotas.service import Quotas
    from tidemark.broker.security.guard import Guard
    from tidemark.broker.server.traces import RequestTraces

log = logging.getLogger(__name__)

LARGE_BYTES: Final = 32 << 10  # a longer request is decoded in slices
FINISH_SECONDS_MAX: Final = 10.0  # that a shutdown waits for requests under way


class _Ready:
    """An answer in bytes, of a job that would otherwise have come to a response."""

    __slots__ = ("encoded",)

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded


class Dispatcher:
    def __init__(self, services: Mapping[str, Callable[[], Any]], kind: ListenerKind = "broker") -> None:
        """The service `guard` says who may ask for what; without one, everybody for everything."""
        self._services = services
        self._kind = kind
        self._bound: dict[int, BoundApi] = {}
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._work = SlicedWork()
        self._gate: Gate | None = None
        self.traces: RequestTraces | None = None
        self._log: RequestLog | None = None
        self._log_from_seconds = float("inf")  # those that take so long are told there
        self._meters_time = False  # the time that requests take counts on their clients' meters
        self._clock: Callable[[], float] | None = None  # if either is so
        self._begun = 0.0  # when the request that is being handled was
        self._waits = False  # and whether its answer has to wait

    def hold_to(self, quotas: Quotas) -> None:
        """From now on clients are held to these, while there are any."""
        gate = Gate(quotas)

        def changed() -> None:
            self._gate = gate if quotas.is_active else None
            self._meters_time = quotas.counts_time
            self._choose_clock()
            self._unbind()

        quotas.watch(changed)
        changed()

    def log_to(self, requests: RequestLog | None) -> None:
        """From now on requests that take long are told there."""
        self._log = requests
        self._log_from_seconds = float("inf") if requests is None else requests.least_seconds
        self._choose_clock()

    def _choose_clock(self) -> None:
        self._clock = current().monotonic if self._meters_time or self._log is not None else None

    def _unbind(self) -> None:
        """What is made on first use is made again."""
        self._bound.clear()

    def __call__(self, connection: Connection, frame: bytearray) -> None:
        clock = self._clock
        if clock is not None:
            self._begun, self._waits = clock(), False
        if len(frame) < REQUEST_BYTES_MIN:
            raise CloseConnection(f"a request of {len(frame)} bytes is too short for a header: {_hex(frame)}")
        selector, correlation_id = request_start(frame)
        bound = self._bound.get(selector)
        if bound is None:
            bound = self._bind(selector, frame)
        connection.api = bound.name
        bound.unmeasured -= 1
        if not bound.unmeasured:
            self._measure(connection, frame, bound)
            return
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
            elif response is not None:
                self._answer(connection, bound, correlation_id, response)
            elif len(frame) > LARGE_BYTES:
                self._serve_large(connection, bound, correlation_id, frame, position, call)
            else:
                # librdkafka 2.16 sends a few bytes too many in some requests, and Kafka does not mind.
                request = bound.decode(memoryview(frame), position, True)
                self._answer(connection, bound, correlation_id, handled(bound, request, call))
        except DecodeError as error:
            raise _undecodable(bound, error, frame) from None
        if clock is not None:
            seconds = clock() - self._begun
            if self._meters_time and connection.meter is not None:
                connection.meter.worked(seconds)
            if seconds >= self._log_from_seconds and not self._waits and self._log is not None:
                self._log.handled(connection, bound, correlation_id, seconds)

    def _measure(self, connection: Connection, frame: bytearray, bound: BoundApi) -> None:
        """Serve this request, and measure how long it takes."""
        raise AssertionError("this dispatcher does not measure")

    def _answer(self, connection: Connection, bound: BoundApi, correlation_id: int, response: Any) -> None:
        if type(response) is bound.response:
            if bound.in_parts:
                connection.answer(encode(bound, correlation_id, response))
                return
            if bound.tally is not None:
                bound.tally(response)
            out = bytearray(bound.head)
            try:
                bound.encode(response, out)
            except EncodeError as error:
                out = encode_mended(bound, response, error)
            put_response_start(out, 0, len(out) - 4, correlation_id)
            connection.answer_whole(out)
        elif response is NO_ANSWER:
            connection.answer(None)
        elif type(response) is GeneratorType:
            self._work_on(connection, bound, correlation_id, response)
        else:
            deferred = self._new_deferred(connection, bound, correlation_id)
            connection.answer_deferred(deferred)
            self._answer_later(connection, bound, correlation_id, response, deferred)

    def _bind(self, selector: int, frame: bytearray) -> BoundApi:
        key, version = split_selector(selector)
        route = find_route(key) if key in served_on(self._kind) else None
        if route is None:
            raise CloseConnection(f"API key {key} (version {version}) is not served here: {_hex(frame)}")
        if version not in route.versions:
            if key == API_VERSIONS_KEY:
                return self._unknown_api_versions(route)
            raise CloseConnection(f"{route.name} v{version} is not served, only {route.versions}")
        quick = None if route.quick is None else bind(route.quick, self._services)
        guard = self._guard()
        if guard is not None and quick is not None:
            quick = None if route.quick_topic is None else guard.quick(quick, route.quick_topic)
        handle = self.handler(route, version)
        if self.traces is not None:
            handle = self.traces.handler(route, handle, has_quick=quick is not None)
            quick = self.traces.quick(quick)
        if self._gate is not None:  # around all ways, or one that is traced would not be counted
            handle = self._gate.handler(route, version, handle)
            if route.quick is not None:
                quick = self._gate.quick(quick)
        bound = self._bound[selector] = BoundApi(route, version, handle, quick)
        return bound

    def handler(self, route: Route, version: int) -> Handler:
        """What answers a request once it is decoded: for those who may ask, and on the controller where it must be."""
        handle: Handler = bind(route.handle, self._services)
        guard = self._guard()
        if guard is not None:
            handle = guard.handler(route, handle)
        if route.on_controller and "forwarding" in self._services:
            relayed: Handler = self._services["forwarding"]().relay(route, version, handle)
            handle = relayed if route.stays_here is None else _either(route.stays_here, handle, relayed)
        return handle

    def _guard(self) -> Guard | None:
        guard: Guard | None = self._services["guard"]() if "guard" in self._services else None
        return guard

    def _unknown_api_versions(self, route: Route) -> BoundApi:
        # KIP-511: an unknown version of ApiVersions is answered in the oldest form, naming the versions we do know.
        bound = BoundApi(route, 0, lambda _request, _call: _api_versions_hint(route))
        bound.decode = lambda _view, _position, _surplus: None
        bound.flexible = False
        return bound

    # -- answers that take time --------------------------------------------

    def _new_deferred(self, connection: Connection, bound: BoundApi, correlation_id: int) -> Deferred[Encoded]:
        """An answer that is waited for."""
        return Deferred() if self._log is None else self._timed_answer(connection, bound, correlation_id)

    def _timed_answer(self, connection: Connection, bound: BoundApi, correlation_id: int) -> TimedAnswer:
        answer = TimedAnswer(self._begun)
        if self._log is not None:
            self._waits = True
            answer.local_seconds = current().monotonic() - self._begun
            answer.told = self._log.answered(connection, bound, correlation_id)
        return answer

    def _serve_large(
        self, connection: Connection, bound: BoundApi, correlation_id: int, frame: bytearray, position: int, call: Call
    ) -> None:
        held: list[Any] = []
        job = _decoded_and_handled(bound, frame, position, call, held)
        self._work_on(connection, bound, correlation_id, job, held)

    def _work_on(
        self,
        connection: Connection,
        bound: BoundApi,
        correlation_id: int,
        job: Job[Any],
        held: list[Any] | None = None,
    ) -> None:
        """A request that may take long: what a slice is not enough for goes on while others have their turn."""
        response = self._work.start(job)
        if response is not INTERRUPTED:
            self._answer(connection, bound, correlation_id, response)
            return
        deferred = self._new_deferred(connection, bound, correlation_id)
        connection.answer_deferred(deferred)
        connection.begin_work()
        held = [] if held is None else held

        def worked(done: Any) -> None:
            self._work.add(free_slowly(held))
            connection.end_work()
            if type(done) is _Ready:
                deferred.resolve(done.encoded)
            else:
                response = awaited(done) if isinstance(done, Deferred) else done  # whose answer may be large, too
                self._answer_later(connection, bound, correlation_id, response, deferred)

        def failed(error: Exception) -> None:
            connection.end_work()
            _answer_failure(connection, bound, correlation_id, error, deferred)

        whole = _answered(bound, correlation_id, job, held)
        self._work.add(whole, lambda: not connection.is_closed).then(worked, failed)

    def _answer_later(
        self, connection: Connection, bound: BoundApi, correlation_id: int, response: Any, deferred: Deferred[Encoded]
    ) -> None:
        if isinstance(response, Deferred):
            deferred.abandon = response.abandon
            response.then(
                lambda value: deferred.resolve(encode(bound, correlation_id, value)),
                lambda error: _answer_failure(connection, bound, correlation_id, error, deferred),
            )
            return
        task = asyncio.ensure_future(self._finish(connection, bound, correlation_id, response, deferred))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(
        self, connection: Connection, bound: BoundApi, correlation_id: int, response: Any, deferred: Deferred[Encoded]
    ) -> None:
        held: list[Any] = []
        try:
            answer = await self._work.finish(_encoded(bound, correlation_id, await response, held))
        except Exception as error:
            _answer_failure(connection, bound, correlation_id, error, deferred)
        else:
            deferred.resolve(answer)
        if held:
            self._work.add(free_slowly(held))

    async def finish_tasks(self) -> None:
        """At shutdown: changes that were under way come to their end, if it is a near one. Clients are still served
        meanwhile, and some ask all the time: that nobody waits for anything any more may never be."""
        deadline = monotonic() + FINISH_SECONDS_MAX
        while (self._tasks or self._work.is_busy) and (left := deadline - monotonic()) > 0:
            if self._tasks:
                await asyncio.wait(list(self._tasks), timeout=left)
            else:
                await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()


def _either(stays_here: Callable[[Any], bool], here: Handler, relayed: Handler) -> Handler:
    return lambda request, call: (here if stays_here(request) else relayed)(request, call)


def _decoded_and_handled(bound: BoundApi, frame: bytearray, position: int, call: Call, held: list[Any]) -> Job[Any]:
    try:
        request = yield from bound.ask.decode_slices(memoryview(frame), position, True)
    except DecodeError as error:
        raise _undecodable(bound, error, frame) from None
    yield from hold_elements(request, held)
    response = handled(bound, request, call)
    return (yield from response) if type(response) is GeneratorType else response


def _answered(bound: BoundApi, correlation_id: int, job: Job[Any], held: list[Any]) -> Job[Any]:
    """The rest of a job, and its answer in bytes; or what the answer is to be waited for."""
    response = yield from job
    if type(response) is not bound.response and response is not NO_ANSWER:
        return response
    return _Ready((yield from _encoded(bound, correlation_id, response, held)))


def _encoded(bound: BoundApi, correlation_id: int, response: Any, held: list[Any]) -> Job[Encoded]:
    encoded = yield from encode_in_slices(bound, correlation_id, response)
    yield from hold_elements(response, held)
    return encoded


def _answer_failure(
    connection: Connection, bound: BoundApi, correlation_id: int, error: Exception, deferred: Deferred[Encoded]
) -> None:
    """A request that fails after its handler has returned is answered like one that fails in it."""
    try:
        if isinstance(error, CloseConnection):
            raise error
        extra = fields_of_failure(bound, connection, correlation_id)
        log.error("%s v%d from %s failed", bound.name, bound.version, connection.peer, exc_info=error, extra=extra)
        answer = encode(bound, correlation_id, failure(bound))
    except CloseConnection as reason:
        connection.fail(str(reason))
    else:
        deferred.resolve(answer)


def _undecodable(bound: BoundApi, error: DecodeError, frame: bytearray) -> CloseConnection:
    return CloseConnection(f"{bound.name} v{bound.version} cannot be decoded: {error}; {_hex(frame)}")


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
    connection.meter = None


def _hex(frame: bytearray) -> str:
    start = bytes(frame[:24])
    return f"it begins {start!r}"
