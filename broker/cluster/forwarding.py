"""Requests that change the metadata, on nodes that are not the controller: passed on to it, and answered for it.

The controller is told who asks, and from where, and decides whether that client may (`guard`). It believes nodes only:
what others send to the controller listener is refused before it gets here.

The answer is given when the change has arrived here too, so that a client finds what it has just done on the node that
answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any, Final, TypeVar

from tidemark.broker.cluster.refusals import refusal_of
from tidemark.broker.core.deferred import Answer, MaybeDeferred, awaited
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.principal import ANONYMOUS, Principal
from tidemark.broker.core.registry import Call, Handler, Route, bind, find_route
from tidemark.broker.core.sliced_work import finished
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.peers import Peers, PeerUnavailable
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.forwarded import ForwardedRequest, ForwardedResponse
from tidemark.protocol.schema import api, codec
from tidemark.storage import FileSlice

SECONDS_DEFAULT: Final = 30.0
RETRY_SECONDS: Final = 0.05
SEEN_SECONDS_MAX: Final = 5.0  # how long an answer waits for the change to arrive here

T = TypeVar("T")


Guard = Callable[[Route, Handler], Handler]


class ForwardedClient:
    """A client of another node, as far as handlers on the controller have to do with it."""

    __slots__ = ("host", "listener", "peer", "principal")

    def __init__(self, principal: Principal, host: str, listener: str) -> None:
        self.principal = principal
        self.host = host
        self.listener = listener
        self.peer = f"{host} by another node"

    def count_waiting(self, size_bytes: int) -> None:
        """What it holds in memory was counted by the node that it is a client of."""

    def release_waiting(self, size_bytes: int) -> None: ...


class Forwarding:
    def __init__(self, store: MetadataStore, peers: Peers, services: Mapping[str, Callable[[], Any]]) -> None:
        self._store = store
        self._peers = peers
        self._services = services
        self._is_stopping = False
        self.guard: Guard = lambda _route, handle: handle  # who may ask for what, of clients that are forwarded here

    def stop_waiting(self) -> None:
        """This node stops: what no controller takes now is for another node to pass on. A client may be ready to wait
        for a controller for hours."""
        self._is_stopping = True

    # -- on the node that was asked ----------------------------------------

    def relay(self, route: Route, version: int, handle: Handler) -> Callable[[Any, Call], Awaitable[object]]:
        """The handler of a request: here if this is the controller, otherwise there."""

        async def answer(request: Any, call: Call) -> object:
            deadline = monotonic() + _seconds(request)
            while True:
                try:
                    if self._store.is_controller:
                        return await _finished(handle(request, call))
                    return await self._ask(route, version, request, call, deadline)
                except (Refused, PeerUnavailable) as error:
                    if isinstance(error, Refused) and error.code != ErrorCode.NOT_CONTROLLER:
                        return await finished(refusal_of(request, route.response, error))
                    if self._is_stopping:
                        stopping = Refused(ErrorCode.NOT_CONTROLLER, f"This broker stops: {error}")
                        return await finished(refusal_of(request, route.response, stopping))
                    if monotonic() + RETRY_SECONDS > deadline:
                        code = ErrorCode.REQUEST_TIMED_OUT
                        late = Refused(code, f"No controller accepted it in time: {error}")
                        return await finished(refusal_of(request, route.response, late))
                await asyncio.sleep(RETRY_SECONDS)

        return answer

    async def ask(self, request: object, response: type[T], *, version: int) -> T:
        """A request of this broker's own to the controller; `Refused` if no controller answered in time."""
        route = find_route(api(type(request)).key)
        assert route is not None
        handle = bind(route.handle, self._services)
        answer = await self.relay(route, version, handle)(request, Call(None, version, None))
        assert isinstance(answer, response)
        return answer

    async def _ask(self, route: Route, version: int, request: Any, call: Call, deadline: float) -> object:
        body = bytearray()
        await finished(codec(route.request, version).encode_slices(request, body))
        envelope = _envelope(call)
        envelope.api_key, envelope.api_version, envelope.body = route.key, version, bytes(body)
        left = max(deadline - monotonic(), RETRY_SECONDS)
        link = self._peers.to_controller(purpose="forwarding")
        answer = await link.send(envelope, version=0, timeout=left, response=ForwardedResponse)
        if answer.error_code != ErrorCode.NONE:
            raise Refused(ErrorCode(answer.error_code), "The controller did not accept it.")
        await self._seen(answer.index)
        return await finished(codec(route.response, version).decode_slices(memoryview(answer.body)))

    async def ask_broker(
        self, node_id: int, route: Route, version: int, request: object, call: Call, *, seconds_max: float
    ) -> object:
        """The answer of another broker, for a client of this one. Raises PeerUnavailable, or Refused."""
        body = bytearray()
        await finished(codec(route.request, version).encode_slices(request, body))
        envelope = _envelope(call)
        envelope.api_key, envelope.api_version, envelope.body = route.key, version, bytes(body)
        envelope.is_for_broker = True
        # A purpose of its own: a fetch may wait, and must not hold up what is for the controller.
        link = self._peers.to_member(node_id, purpose=f"clients {route.name}")
        seconds_max += getattr(request, "max_wait_ms", 0) / 1000
        answer = await link.send(envelope, version=0, timeout=seconds_max, response=ForwardedResponse)
        if answer.error_code != ErrorCode.NONE:
            raise Refused(ErrorCode(answer.error_code), f"Node {node_id} did not accept it.")
        return await finished(codec(route.response, version).decode_slices(memoryview(answer.body)))

    async def _seen(self, index: int) -> None:
        try:
            async with asyncio.timeout(SEEN_SECONDS_MAX):
                await self._store.applied(index)
        except TimeoutError:
            pass  # it is done all the same

    # -- on the controller -------------------------------------------------

    async def answer(self, forwarded: ForwardedRequest) -> ForwardedResponse:
        route = find_route(forwarded.api_key)
        is_for_broker = forwarded.is_for_broker
        if route is None or route.on_controller is is_for_broker or forwarded.api_version not in route.versions:
            return ForwardedResponse(error_code=ErrorCode.INVALID_REQUEST)
        if not is_for_broker and not self._store.is_controller:
            return ForwardedResponse(error_code=ErrorCode.NOT_CONTROLLER)
        version = forwarded.api_version
        request = await finished(codec(route.request, version).decode_slices(memoryview(forwarded.body)))
        handle = self.guard(route, bind(route.handle, self._services))
        try:
            response = await _finished(handle(request, Call(_client(forwarded), version, forwarded.client_id)))
        except Refused as refusal:
            return ForwardedResponse(error_code=refusal.code)
        body = bytearray()
        if route.in_parts:
            parts = codec(route.response, version).encode_parts(response, body)
            body = await asyncio.get_running_loop().run_in_executor(None, _joined, parts)
        else:
            await finished(codec(route.response, version).encode_slices(response, body))
        return ForwardedResponse(index=self._store.applied_index, body=bytes(body))


def _joined(parts: Sequence[object]) -> bytearray:
    """An answer whose records are in files, as bytes: for a thread."""
    joined = bytearray()
    for part in parts:
        if not isinstance(part, FileSlice):
            joined += part  # type: ignore[arg-type]
            continue
        read = memoryview(bytearray(part.length))
        if part.file.read_into(read, part.position) != part.length:
            raise OSError("a segment ended before the bytes it was said to hold")
        joined += read
    return joined


def _envelope(call: Call) -> ForwardedRequest:
    client = call.connection
    if client is None:
        return ForwardedRequest(is_own=True)
    return ForwardedRequest(
        client_id=call.client_id,
        principal_type=client.principal.type,
        principal_name=client.principal.name,
        client_host=client.host,
        listener=client.listener,
        token_authenticated=client.principal.token_authenticated,
    )


def _client(forwarded: ForwardedRequest) -> ForwardedClient | None:
    """None: another node asks for itself, and may."""
    if forwarded.is_own:
        return None
    named = Principal(forwarded.principal_type, forwarded.principal_name, forwarded.token_authenticated)
    return ForwardedClient(named if named.type else ANONYMOUS, forwarded.client_host, forwarded.listener)


async def _finished(response: Answer[T]) -> T:
    done: MaybeDeferred[T] | Awaitable[T]
    done = await finished(response) if isinstance(response, Generator) else response
    if isinstance(done, Awaitable):
        return await done
    return await awaited(done)


def _seconds(request: Any) -> float:
    timeout_ms: int = getattr(request, "timeout_ms", 0)
    return timeout_ms / 1000 if timeout_ms > 0 else SECONDS_DEFAULT
