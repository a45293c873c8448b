"""A connection to another node, in Kafka's framing: requests are pipelined, answers found by their correlation id.

The connection is opened when it is first needed, and again after it was lost, with a growing pause between attempts. A
request that is not answered in time closes the connection: a node that late is late for the next one, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from tidemark import portable
from tidemark.protocol.frames import Framer, FrameTooLarge, Scratch
from tidemark.protocol.headers import RequestHeader, read_correlation_id, request_frame, response_body_at
from tidemark.protocol.messages.api_versions import ApiVersionsRequest
from tidemark.protocol.schema import Bytes, DecodeError, api, codec

log = logging.getLogger(__name__)

FRAME_BYTES_MAX: Final = 1 << 30
UNSENT_BYTES_MAX: Final = 64 << 20
IN_FLIGHT_MAX: Final = 1000
BACKOFF_SECONDS_MIN: Final = 0.02
BACKOFF_SECONDS_MAX: Final = 0.5
SECURE_SECONDS_MAX: Final = 3.0  # with a handshake, on a machine that is busy
RENEWED_AFTER: Final = 0.8  # of a login's time
CONNECT_SECONDS_MAX: Final = 1.5  # then it is tried anew: a lost SYN is sent again ever more seldom

# When the network loses everything for a while, TCP sends again ever more seldom, and a connection stays dead for long
# after the network is well again. So a connection whose bytes are not acknowledged for a second is given up, and
# an idle one is probed.
UNACKNOWLEDGED_MS_MAX: Final = 1000
KEEP_ALIVE_SECONDS: Final = 1
KEEP_ALIVE_PROBES: Final = 2

Response = TypeVar("Response")


class PeerUnavailable(Exception):
    """The other node cannot be reached, does not answer, or is not known. Whether it got the request is unknown."""


class PeerUnreachable(PeerUnavailable):
    """There is no connection: it did not get the request."""


class Connector(Protocol):
    """Connects by more than a socket: over TLS, with a login."""

    async def connect(self, channel: Channel, host: str, port: int, /) -> float | None:
        """Returns when the channel may be used, and for how many seconds: None is for ever. Raises OSError."""


class PeerLink:
    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        lost: Callable[[], None] | None = None,
        name: str = "",
        scratch: Scratch | None = None,
        silence_seconds_max: float | None = None,
        connector: Connector | None = None,
    ) -> None:
        """`lost` is called when an open connection has ended; `scratch`: the receive buffer that the links of one node
        share; `silence_seconds_max`: how long a peer that is sent posts may leave a question of ours unanswered;
        `connector`: if the connection is not a plain one."""
        self.host = host
        self.port = port
        self.name = name or f"{host}:{port}"
        self.scratch = scratch or Scratch()
        self._client_id = client_id
        self._connector = connector
        self._lost = lost
        self._channel: Channel | None = None
        self._connecting: asyncio.Task[Channel] | None = None
        self._backoff = 0.0
        self._not_before = 0.0
        self._correlation_id = 0
        self._closed = False
        self._silence_seconds_max = silence_seconds_max
        self._ping: asyncio.Future[memoryview] | None = None
        self._pinged_at = 0.0
        self._posted_at = 0.0

    @property
    def is_connected(self) -> bool:
        return self._channel is not None

    async def send(
        self,
        request: object,
        *,
        version: int,
        timeout: float,  # noqa: ASYNC109 -- a time-out here also closes the connection
        response: type[Response],
    ) -> Response:
        """The answer, as a message of the type `response`. Its byte fields are views of the buffer it arrived in."""
        described = api(type(request))
        body = bytearray()
        codec(type(request), version).encode(request, body)
        answer = await self.send_raw(
            described.key, version, body, flexible=version in described.flexible, timeout=timeout
        )
        return self.decoded(answer, response, version=version)

    def begin(self, request: object, *, version: int) -> asyncio.Future[memoryview] | None:
        """As `send` without a task and a time-out, for a caller that sends many: it passes the answer to `decoded`.

        None while there is no connection.
        """
        if self._channel is None:
            return None
        described = api(type(request))
        body = bytearray()
        codec(type(request), version).encode(request, body)
        return self._channel.begin(*self._frame(described.key, version, body, flexible=version in described.flexible))

    def decoded(self, answer: memoryview, response: type[Response], *, version: int) -> Response:
        try:
            return codec(response, version).decode(answer, response_body_at(answer, response, version))
        except DecodeError as error:
            self.hang_up()
            raise PeerUnavailable(f"{self.name} answered with what cannot be read: {error}") from error

    async def send_raw(
        self,
        key: int,
        version: int,
        body: Bytes,
        *,
        flexible: bool,
        timeout: float,  # noqa: ASYNC109 -- a time-out here also closes the connection
    ) -> memoryview:
        """Pass a request on as it is; the answer is the whole frame, which begins with the correlation id."""
        channel: Channel | None = None
        try:
            async with asyncio.timeout(timeout):
                channel = await self._connected()
                return await channel.ask(*self._frame(key, version, body, flexible=flexible))
        except TimeoutError:
            if channel is not None and channel is self._channel:
                self.hang_up()
            raise PeerUnavailable(f"{self.name} did not answer within {timeout:g} s") from None

    def post(self, key: int, version: int, body: Bytes, *, flexible: bool) -> bool:
        """Send what has no answer, if that is possible right now; otherwise it is lost, and a connection is sought."""
        if self._channel is None:
            if not self._closed and self._connecting is None:
                self._begin_connecting()
            return False
        if self._channel.unsent_bytes > UNSENT_BYTES_MAX:
            return False
        if self._silence_seconds_max is not None and self._is_silent(self._silence_seconds_max):
            self._channel.abort("the other side is silent")
            return False
        self._channel.write(self._frame(key, version, body, flexible=flexible)[1])
        return True

    def _is_silent(self, seconds_max: float) -> bool:
        """Posts have no answer, so now and then something is asked that has one."""
        now = asyncio.get_running_loop().time()
        has_stood_still = now > self._posted_at + seconds_max / 2
        self._posted_at = now
        if self._ping is not None and not self._ping.done():
            if has_stood_still:  # this process, most likely: the answer may be here, and only has to be read
                self._pinged_at = now
            return now > self._pinged_at + seconds_max
        if now > self._pinged_at + seconds_max / 2:
            self._pinged_at = now
            with contextlib.suppress(PeerUnavailable):
                self._ping = self.begin(ApiVersionsRequest(), version=0)
        return False

    def hang_up(self) -> None:
        """Close the connection; the next request opens another."""
        if self._channel is not None:
            self._channel.abort("it was given up here")

    async def close(self) -> None:
        self._closed = True
        self.hang_up()
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError, PeerUnavailable):
                await self._connecting

    def _frame(self, key: int, version: int, body: Bytes, *, flexible: bool) -> tuple[int, bytes]:
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(key, version, correlation_id, self._client_id)
        return correlation_id, request_frame(header, body, flexible=flexible)

    # -- connecting --------------------------------------------------------

    async def _connected(self) -> Channel:
        if self._channel is not None:
            return self._channel
        if self._closed:
            raise PeerUnavailable(f"the link to {self.name} is closed")
        connecting = self._connecting or self._begin_connecting()
        return await asyncio.shield(connecting)  # others may wait for the same attempt

    def _begin_connecting(self) -> asyncio.Task[Channel]:
        task = self._connecting = asyncio.get_running_loop().create_task(self._connect())
        task.add_done_callback(_seen)
        return task

    async def _connect(self) -> Channel:
        loop = asyncio.get_running_loop()
        try:
            if (wait := self._not_before - loop.time()) > 0:
                await asyncio.sleep(wait)
            channel = await self._open()
        except (OSError, TimeoutError) as error:
            self._backoff = min(max(self._backoff * 2, BACKOFF_SECONDS_MIN), BACKOFF_SECONDS_MAX)
            self._not_before = loop.time() + self._backoff
            raise PeerUnreachable(f"{self.name} cannot be reached: {str(error) or 'it takes too long'}") from error
        finally:
            self._connecting = None
        self._backoff = 0.0
        previous, self._channel = self._channel, channel
        if previous is not None:
            previous.retire()
        return channel

    async def _open(self) -> Channel:
        channel = Channel(self)
        if self._connector is not None:
            async with asyncio.timeout(SECURE_SECONDS_MAX):
                seconds = await self._connector.connect(channel, self.host, self.port)
            if seconds is not None:
                asyncio.get_running_loop().call_later(seconds * RENEWED_AFTER, self._renew, channel)
        else:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                await asyncio.get_running_loop().create_connection(lambda: channel, self.host, self.port)
        return channel

    def _renew(self, channel: Channel) -> None:
        """Its login ends soon: make another connection while this one still serves."""
        if channel is self._channel and self._connecting is None and not self._closed:
            self._begin_connecting()

    def lost_channel(self, channel: Channel) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        if not self._closed and self._lost is not None:
            self._lost()


def _seen(task: asyncio.Task[Channel]) -> None:
    """Perhaps no task awaits this attempt: asyncio must not complain that its error was never read."""
    if not task.cancelled():
        task.exception()


class Channel(asyncio.BufferedProtocol):
    """One open connection."""

    def __init__(self, link: PeerLink) -> None:
        self._link = link
        self._framer = Framer(link.scratch, limit_bytes=FRAME_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._reason = "it was closed by the other side"
        self._is_retired = False

    @property
    def unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size()

    def write(self, frame: bytes) -> None:
        self._transport.write(frame)

    def begin(self, correlation_id: int, frame: bytes) -> asyncio.Future[memoryview]:
        if len(self._waiting) >= IN_FLIGHT_MAX or self.unsent_bytes > UNSENT_BYTES_MAX:
            raise PeerUnavailable(f"too much is under way to {self._link.name}")
        if self._transport.is_closing():
            raise PeerUnavailable(f"the connection to {self._link.name} is closing")
        future: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        self._transport.write(frame)
        return future

    async def ask(self, correlation_id: int, frame: bytes) -> memoryview:
        try:
            return await self.begin(correlation_id, frame)
        finally:
            self._waiting.pop(correlation_id, None)

    def retire(self) -> None:
        """Another connection has taken over: this one ends with its last answer."""
        self._is_retired = True
        if not self._waiting:
            self._transport.close()

    def abort(self, reason: str) -> None:
        self._reason = reason
        self._transport.abort()
        self._end()

    # -- the transport calls these ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        connected: socket.socket = transport.get_extra_info("socket")
        portable.keep_alive(
            connected,
            idle_seconds=KEEP_ALIVE_SECONDS,
            interval_seconds=KEEP_ALIVE_SECONDS,
            probes=KEEP_ALIVE_PROBES,
        )
        portable.limit_unacknowledged(connected, milliseconds=UNACKNOWLEDGED_MS_MAX)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._framer.received(nbytes)
        try:
            while (frame := self._framer.next_frame()) is not None:
                self._answered(frame)
        except (FrameTooLarge, DecodeError) as error:
            log.warning("closing the connection to %s: %s", self._link.name, error)
            self.abort(str(error))

    def _answered(self, frame: bytearray) -> None:
        future = self._waiting.pop(read_correlation_id(frame), None)
        if future is not None and not future.done():
            future.set_result(memoryview(frame))
        if self._is_retired and not self._waiting:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            self._reason = str(exc)
        self._end()

    def _end(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerUnavailable(f"the connection to {self._link.name} is gone: {self._reason}"))
                future.exception()  # the caller may have stopped waiting: asyncio then must not complain
        self._link.lost_channel(self)
