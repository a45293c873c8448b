"""Requests that HTTP clients cause: made as Kafka requests, and answered by the same handlers, behind the same guard.

A request for a partition or a group goes to the broker that leads or coordinates it: this one, or another, which is
asked over the cluster's own listener and told who asks (`cluster/forwarding`).
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import CloseConnection, Refused
from tidemark.broker.core.principal import Principal
from tidemark.broker.core.registry import Call, Handler, Route, find_route
from tidemark.broker.core.sliced_work import finished_in_background
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.waits import waiting
from tidemark.broker.peers import PeerUnavailable, PeerUnreachable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.schema import api
from tidemark.storage import FileSlice

if TYPE_CHECKING:
    from tidemark.broker.cluster.forwarding import Forwarding

R = TypeVar("R")

SECONDS_MAX: Final = 30.0

GoOn = Callable[["asyncio.Future[Any]", Any], None]


class HttpCaller:
    """An HTTP client, as far as handlers have to do with it."""

    client_software = ""

    def __init__(self, request: HttpRequest, *, listener: str) -> None:
        """`listener`: of Kafka clients, whose addresses are told where an answer holds addresses."""
        self.principal: Principal = request.principal
        self.host = request.host
        self.listener = listener
        self.peer = f"{request.host} (HTTP)"
        self.client_id = request.client_id
        self.meter = request.meter
        self.is_closed = False

    def count_waiting(self, size_bytes: int) -> None:
        """Its bytes are counted by the HTTP listener, until it is answered."""

    def release_waiting(self, size_bytes: int) -> None: ...


class Calls:
    def __init__(
        self,
        handler_of: Callable[[Route, int], Handler],
        *,
        node_id: int,
        listener: str,
        forwarding: Forwarding | None,
        go_on: GoOn,
    ) -> None:
        """`go_on`: sets a future's result when it is its turn."""
        self._go_on = go_on
        self._handler_of = handler_of
        self._node_id = node_id
        self._listener = listener
        self._forwarding = forwarding
        self._handlers: dict[tuple[int, int], Handler] = {}

    def caller(self, request: HttpRequest) -> HttpCaller:
        return HttpCaller(request, listener=self._listener)

    async def ask(
        self, request: object, response: type[R], caller: HttpCaller, *, version: int | None = None, node_id: int = -1
    ) -> R:
        """The answer of this node, or of another. Raises Problem if there is none."""
        described = api(type(request))
        route = find_route(described.key)
        assert route is not None
        version = described.versions.last if version is None else version
        call = Call(caller, version, caller.client_id, in_background=True)
        try:
            if node_id in (-1, self._node_id):
                answer = await self._answered(self._handler(route, version)(request, call))
            else:
                answer = await self._ask_other(route, version, request, call, node_id)
        except Refused as refusal:
            raise Problem.of(refusal.code, refusal.message) from refusal
        except CloseConnection as reason:
            raise Problem(503, "BROKER_NOT_AVAILABLE", str(reason)) from reason
        assert isinstance(answer, response)
        return answer

    async def _ask_other(self, route: Route, version: int, request: object, call: Call, node_id: int) -> object:
        if self._forwarding is None:
            raise Problem.of(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {node_id} is not known here.")
        ask = partial(self._forwarding.ask_broker, node_id, route, version, request, call, seconds_max=SECONDS_MAX)
        try:
            with waiting():
                with contextlib.suppress(PeerUnreachable):
                    return await ask()
                return await ask()  # on a busy machine, a connection that takes too long once is there the next time
        except PeerUnavailable as error:
            raise Problem(503, "BROKER_NOT_AVAILABLE", f"Node {node_id} does not answer: {error}.") from error

    def _handler(self, route: Route, version: int) -> Handler:
        found = self._handlers.get((route.key, version))
        if found is None:
            found = self._handlers[route.key, version] = self._handler_of(route, version)
        return found

    async def _answered(self, answer: Any) -> object:
        """What a handler comes to. A wait that nobody wants any more is given up."""
        if type(answer) is GeneratorType:
            answer = await finished_in_background(answer)
        if isinstance(answer, Deferred):
            with waiting():
                return await self._resolved(answer)
        if not inspect.isawaitable(answer):
            return answer
        with waiting():
            return await answer

    async def _resolved(self, deferred: Deferred[Any]) -> object:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        waits = False

        def resolved(value: object) -> None:
            if waits:
                self._go_on(future, value)
            else:
                future.set_result(value)

        deferred.then(resolved, lambda error: None if future.done() else future.set_exception(error))
        waits = True
        try:
            return await future
        except asyncio.CancelledError:
            if deferred.abandon is not None:
                deferred.abandon()
            raise


async def bytes_of(records: Any) -> bytes:
    """The records of a Fetch answer: slices of files on this node (read on a thread), or bytes of another's answer."""
    if isinstance(records, list):
        with waiting():
            return await asyncio.get_running_loop().run_in_executor(None, _read, records)
    return bytes(records or b"")


def _read(slices: list[FileSlice]) -> bytes:
    parts = []
    for each in slices:
        part = bytearray(each.length)
        if each.file.read_into(memoryview(part), each.position) != each.length:
            raise OSError("a segment ended before the bytes it was said to hold")
        parts.append(part)
    return b"".join(parts)
