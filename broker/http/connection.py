"""One HTTP connection: requests are answered one after the other, and every step has a limit in bytes and in time.

Whole requests go to the application; while one is answered, a few more are read, and an end is noticed. Where the time
of a step is over (a request that does not come to its end, an answer that is not read), the listener's sweep cuts it
off.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import httptools

from tidemark.broker.core.principal import ANONYMOUS
from tidemark.broker.http.messages import HttpRequest, HttpResponse, StreamedResponse
from tidemark.broker.http.problems import PROBLEM_TYPE, REASONS, Problem
from tidemark.broker.http.targets import check_host, origin_form

if TYPE_CHECKING:
    from tidemark.broker.http.listener import HttpListener

log = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 32 << 10  # the request line and all headers
TARGET_BYTES_MAX: Final = 8 << 10
HEADERS_MAX: Final = 100
# What is parsed at once, but for bodies. Of what came behind a whole request the rest is kept until that is answered:
# 64 KB hold thousands of requests, which would take the parser a while.
PIECE_BYTES: Final = 4 << 10
# That the parser keeps, or passes over, before it tells us anything: of a line that does not come to its end.
LINE_BYTES_MAX: Final = HEAD_BYTES_MAX + PIECE_BYTES
LINGER_SECONDS: Final = 2.0
GRACE_SECONDS: Final = 1.0
PART_BYTES: Final = 128 << 10  # of a long answer that are sent at once
BUFFERED_BYTES_MAX: Final = 16 << 10  # in the transport, before an answer waits for its reader

Answer = HttpResponse | StreamedResponse
Application = Callable[[HttpRequest], Awaitable[Answer]]


class HttpConnection(asyncio.BufferedProtocol):
    def __init__(self, listener: HttpListener, name: str) -> None:
        self._listener = listener
        self.listener = name
        self.peer = "?"
        self.host = "?"
        self.principal = ANONYMOUS  # of a certificate, if the client has one
        self.descriptor = -1  # of its socket
        self._is_encrypted = False
        self._waiting: deque[tuple[HttpRequest, bool]] = deque()  # whole requests, and whether the connection goes on
        self._unparsed = b""  # what came behind them
        self.held_bytes = 0  # by an answer: records that become JSON, and what is not sent of it
        self._buffered_bytes = 0  # of these, in the transport of a client that does not read
        self._task: asyncio.Task[None] | None = None
        self._answering: HttpRequest | None = None
        self._has_turn = False  # it is in line to be answered
        self._reading = True
        self._closing = False
        self._refused: Problem | None = None  # of what is being received: it is told, and then we hang up
        self._lingers = False  # all is said: what the client still sends is thrown away, for a moment
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._deadline = listener.deadline()
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._was_told = False  # something by the parser, of the piece it has just read
        self._line_bytes = 0  # since then
        self._forget_request()

    def _forget_request(self) -> None:
        self._under_way = False
        self._target = b""
        self._headers: dict[str, str] = {}
        self._head_bytes = self._head_lines = 0
        self._has_head = False
        self._length = 0  # of the body, if it was said
        self._body = bytearray()

    # -- the transport calls these ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._is_encrypted = transport.get_extra_info("ssl_object") is not None
        transport.set_write_buffer_limits(high=BUFFERED_BYTES_MAX)
        address = transport.get_extra_info("peername") or ("?", 0)
        self.host, self.peer = str(address[0]), f"{address[0]}:{address[1]}"
        self.owner = self._listener.owner(self.host)
        self.descriptor = transport.get_extra_info("socket").fileno()
        if not self._listener.register(self):
            self._closing = True
            transport.abort()
            return
        admission = self._listener.admit(self)
        if admission.seconds:
            self._stop_reading()
            self._listener.call_later(admission.seconds, self.abort if admission.is_refused else self._read_on)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._listener.scratch

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing or self._refused is not None:
            return
        data = self._listener.scratch[:nbytes]
        if self._unparsed:
            self._unparsed += data  # TLS gives on what it has decrypted already
        else:
            self._parse(data)
        self._answer_next(has_turn=True)

    def eof_received(self) -> bool:
        """The client sends no more, and most probably is gone. One that only says so gets what is nearly done."""
        if self._is_idle or self._lingers:
            return False
        if self._answering is not None and self._answering.ends_with_client:
            self.abort()
            return False
        self._listener.call_later(GRACE_SECONDS, self.abort)
        return not self._is_encrypted

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._can_write.set()
        self._release(len(self._body) + sum(len(request.body) for request, _ in self._waiting))
        self._waiting.clear()
        self._unparsed = b""
        if self._task is not None:
            self._task.cancel()
        self._release_answered()
        self._listener.held.unblocked(self)
        self._listener.forget(self)

    def pause_writing(self) -> None:
        self._can_write.clear()
        self._deadline = self._listener.deadline()
        self._buffered_bytes = self._transport.get_write_buffer_size()
        self.hold(self._buffered_bytes)
        self._listener.held.blocked(self)

    def resume_writing(self) -> None:
        self._deadline = self._listener.deadline()
        self._listener.held.unblocked(self)
        self.release(self._buffered_bytes)
        self._buffered_bytes = 0
        self._can_write.set()

    # -- the parser, and what it calls -------------------------------------

    def _parse(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            if self._waiting:
                self._unparsed = bytes(data[at:])
                return
            end = at + max(PIECE_BYTES, self._length - len(self._body))
            if not self._feed(data[at:end]):
                return
            at = end

    def _feed(self, piece: memoryview) -> bool:
        """Whether what follows is looked at."""
        self._was_told = False
        try:
            self._feed_parser(piece)
            self._line_bytes = 0 if self._was_told else self._line_bytes + len(piece)
            if self._line_bytes <= LINE_BYTES_MAX:
                return True
            self._refuse(_too_long_a_head())
        except httptools.HttpParserError as error:
            problem = error.__context__ if isinstance(error.__context__, Problem) else None
            self._refuse(problem or Problem(400, "INVALID_REQUEST", f"This is not HTTP/1.1: {error}."))
        return False

    def _feed_parser(self, piece: memoryview | bytes) -> None:
        """Who wishes for another protocol is answered as if it had not (RFC 9110, 7.8). Java's client wishes for HTTP/2
        with every body; the parser would take the body for that protocol, so it gets the head without the wish."""
        while True:
            try:
                self._parser.feed_data(piece)
                return
            except httptools.HttpParserUpgrade as wish:
                piece = _without_wish(self._parser, self._target, self._headers) + piece[wish.args[0] :]
                self._begin()

    def _parse_rest(self) -> None:
        if self._unparsed and not self._waiting:
            rest, self._unparsed = memoryview(self._unparsed), b""
            self._parse(rest)

    def on_message_begin(self) -> None:
        self._was_told = True
        self._under_way = True
        self._deadline = self._listener.deadline()

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > TARGET_BYTES_MAX:
            raise Problem(414, "INVALID_REQUEST", f"A target has {TARGET_BYTES_MAX} bytes at most.")

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self._was_told = True
        self._head_bytes += len(name) + len(value or b"")
        self._head_lines += 1
        if self._head_bytes > HEAD_BYTES_MAX or self._head_lines > HEADERS_MAX:
            raise _too_long_a_head()
        if self._has_head:
            return  # behind a chunked body: who is between the client and us may have looked at the head only
        key = name.decode("latin-1").lower()
        text = (value or b"").decode("latin-1")
        if key == "host" and key in self._headers:
            raise Problem(400, "INVALID_REQUEST", "A request has one host.")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        self._has_head = True
        if self._parser.get_method() == b"CONNECT":
            raise Problem(501, "INVALID_REQUEST", "This is no proxy.")
        if self._parser.should_upgrade():
            return  # it is read once more, without that
        length = self._headers.get("content-length", "")
        if length.isascii() and length.isdigit():
            self._length = int(length[:20])
            self._check_body(self._length)
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise Problem(505, "INVALID_REQUEST", "Only HTTP/1.1 is spoken here.")
        self._target = origin_form(self._target, self._headers, is_encrypted=self._is_encrypted)
        check_host(self._headers, version)
        coding = self._headers.get("transfer-encoding")
        if coding is not None and version == "1.0":  # who is between the client and us may not know of chunks
            raise Problem(400, "INVALID_REQUEST", "HTTP/1.0 has no Transfer-Encoding.")
        if coding is not None and coding.lower() != "chunked":
            raise Problem(400, "INVALID_REQUEST", "The only Transfer-Encoding that is understood is chunked.")
        if version == "1.1" and self._headers.get("expect", "").lower() == "100-continue" and self._is_idle:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._was_told = True
        self._check_body(len(self._body) + len(body))
        if not self._listener.reserve(self.owner, len(body)):
            raise _too_many_bytes()
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            target=self._target.decode("latin-1"),
            headers=self._headers,
            body=bytes(self._body),
            host=self.host,
            listener=self.listener,
            is_encrypted=self._is_encrypted,
            takes_chunks=self._parser.get_http_version() != "1.0",
            principal=self.principal,
            large_bodies=self._listener.large_bodies,
            holder=self,
        )
        self._forget_request()
        # One of HTTP/1.0 that wants to go on would have to be told that it may; it is hung up on like the others.
        self._waiting.append((request, request.takes_chunks and self._parser.should_keep_alive()))

    def _check_body(self, size: int) -> None:
        limit = self._listener.body_bytes_max
        if size > limit:
            raise Problem(413, "MESSAGE_TOO_LARGE", f"A body has {limit} bytes at most.")

    # -- answering ---------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self._closing

    @property
    def _is_idle(self) -> bool:
        return self._task is None and not self._waiting

    @property
    def is_unused(self) -> bool:
        """Nothing of a request is here."""
        return self._is_idle and not self._under_way

    def _refuse(self, problem: Problem) -> None:
        """What is being received cannot be taken: requests before it are answered, then this, then we hang up."""
        self._refused = problem
        self._release(len(self._body))
        self._forget_request()

    def refuse_body(self) -> None:
        """Others need the room for what is arriving here."""
        self._refuse(_too_many_bytes())
        self._unparsed = b""
        self._answer_next()

    @property
    def arrived_bytes(self) -> int:
        """Of a body that is not complete yet."""
        return len(self._body)

    def _release(self, size_bytes: int) -> None:
        self._listener.release(self.owner, size_bytes)

    def _answer_next(self, *, has_turn: bool = False) -> None:
        """`has_turn`: among all connections it is this one's."""
        if self._task is not None or self._closing:
            if self._waiting or self._unparsed:
                self._stop_reading()  # what waits its turn is enough
            return
        self._parse_rest()
        if self._waiting:
            if self._unparsed:
                self._stop_reading()
            if not self._has_turn:
                self._has_turn = True
                self._listener.begin(self._begin_answer, at_once=has_turn)
        elif self._refused is not None:
            if not self._lingers:
                self._transport.write(self._whole(_refusal(self._refused), "GET", goes_on=False))
                self._linger()
        else:
            self._read_on()

    def _begin_answer(self) -> None:
        self._has_turn = False
        if self._closing or not self._waiting:
            return
        request, goes_on = self._waiting.popleft()
        self._answering = request
        self._task = asyncio.get_running_loop().create_task(self._answer(request, goes_on))
        self._listener.has_begun()
        self._parse_rest()
        if self._waiting or self._unparsed:
            self._stop_reading()
        else:
            self._read_on()  # to notice when the client goes

    async def _answer(self, request: HttpRequest, goes_on: bool) -> None:
        try:
            answer = await self._answered(request)
            if isinstance(answer, HttpResponse):
                await self._send(answer, request.method, goes_on=goes_on)
            else:
                goes_on = await self._stream(answer, request, goes_on=goes_on)
            await self._written()
        except asyncio.CancelledError:
            if not self._closing:
                self._hang_up()
            return
        finally:
            self._task = None
            self._release_answered()
        if not goes_on or self._listener.is_closing:
            self._hang_up()
        self.owner.items.move_to_end(self)
        self._deadline = self._listener.deadline()  # from here, not from its last byte: bytes can come one by one
        self._answer_next()

    def _release_answered(self) -> None:
        if self._answering is not None:
            self._release(len(self._answering.body))
            self._answering = None
        self.release(self.held_bytes)

    async def _answered(self, request: HttpRequest) -> Answer:
        try:
            return await self._listener.application(request)
        except Problem as problem:
            refusal = _refusal(problem)
            # Its traceback leads to frames that lead back to it, and to the body: they would stay until the next
            # collection of such cycles, with megabytes each.
            problem.with_traceback(None).__context__ = problem.__cause__ = None
            return refusal
        except Exception:
            log.exception("%s %s from %s failed", request.method, request.path[:200], self.peer)
            return _refusal(Problem(500, "UNKNOWN_SERVER_ERROR", "It failed here; the broker's log says why."))

    async def _send(self, answer: HttpResponse, method: str, *, goes_on: bool) -> None:
        if self._closing:
            return
        if len(answer.body) <= PART_BYTES or method == "HEAD":
            self._transport.write(self._whole(answer, method, goes_on=goes_on))
            return
        self._transport.write(self._whole(answer, "HEAD", goes_on=goes_on))
        self.hold(len(answer.body))
        await self._send_parts(answer.body)

    async def _send_parts(self, data: bytes) -> None:
        """A part at a time: else all that is not sent is copied again and again."""
        view = memoryview(data)
        for start in range(0, len(data), PART_BYTES):
            self._transport.write(view[start : start + PART_BYTES])
            await self._written()

    def hold(self, size_bytes: int) -> None:
        if not self._closing:
            self.held_bytes += size_bytes
            self._listener.held.count(size_bytes)

    def release(self, size_bytes: int) -> None:
        size_bytes = min(size_bytes, self.held_bytes)  # the rest was released when the answer was over
        self.held_bytes -= size_bytes
        self._listener.held.release(size_bytes)

    def _whole(self, answer: HttpResponse, method: str, *, goes_on: bool) -> bytes:
        head = self._head(answer.status, answer.content_type if answer.body else "", answer.headers, goes_on)
        if answer.status != 204:
            head += f"Content-Length: {len(answer.body)}\r\n".encode()
        return head + b"\r\n" + (b"" if method == "HEAD" else answer.body)

    async def _stream(self, answer: StreamedResponse, request: HttpRequest, *, goes_on: bool) -> bool:
        """In chunks, each of which waits until the client has read what was before. Whether the connection goes on."""
        in_chunks = request.takes_chunks
        goes_on = goes_on and in_chunks  # without them, the end of a stream is the connection's
        head = self._head(answer.status, answer.content_type, answer.headers, goes_on)
        self._transport.write(head + (b"Transfer-Encoding: chunked\r\n\r\n" if in_chunks else b"\r\n"))
        try:
            if request.method == "HEAD":
                return goes_on
            async for chunk in answer.chunks:
                self.hold(len(chunk))
                if len(chunk) > PART_BYTES:
                    if in_chunks:
                        self._transport.write(b"%x\r\n" % len(chunk))
                    await self._send_parts(chunk)
                    if in_chunks:
                        self._transport.write(b"\r\n")
                elif chunk:
                    self._transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if in_chunks else chunk)
                await self._written()
                self.release(len(chunk))
            if in_chunks:
                self._transport.write(b"0\r\n\r\n")
            return goes_on
        except Exception:
            # The head is out already: all that is left to say so is to hang up in the middle.
            log.exception("%s %s to %s failed in the middle", request.method, request.path[:200], self.peer)
            return False
        finally:
            if (close := getattr(answer.chunks, "aclose", None)) is not None:
                with contextlib.suppress(Exception):
                    await close()

    async def _written(self) -> None:
        if not self._can_write.is_set():
            await self._can_write.wait()
        if self._closing:
            raise asyncio.CancelledError

    def _head(self, status: int, content_type: str, headers: tuple[tuple[str, str], ...], goes_on: bool) -> bytes:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}", f"Date: {self._listener.date()}"]
        if content_type:
            lines.append(f"Content-Type: {content_type}")
        lines += [f"{name}: {value}" for name, value in headers]
        if not goes_on:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n").encode("latin-1", "replace")

    # -- reading, and the end ----------------------------------------------

    def _stop_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._transport.resume_reading()

    def _hang_up(self) -> None:
        if not self._closing:
            self._closing = True
            self._transport.close()

    def _linger(self) -> None:
        """Hang up on a client that still sends. Closed at once, its system would throw our last words away."""
        self._lingers = True
        if self._is_encrypted:
            self._hang_up()
            return
        self._transport.write_eof()
        self._deadline = self._listener.deadline(seconds_max=LINGER_SECONDS)
        self._read_on()

    @property
    def is_streaming_slowly(self) -> bool:
        return not self._can_write.is_set()

    def sweep(self, now: float) -> None:
        """Called now and then: cut off a client whose time is over."""
        if now < self._deadline:
            return
        if self._closing or self._lingers or self.is_streaming_slowly:
            self.abort()  # it does not read what we send, or goes on after its request was refused
        elif self._task is not None:
            return  # it waits for us
        elif self._under_way:
            self._refused = Problem(408, "REQUEST_TIMED_OUT", "The request took too long to arrive.")
            self._answer_next()
        else:
            self._hang_up()

    def abort(self) -> None:
        if self._closing and self._transport.is_closing() and not self._transport.get_write_buffer_size():
            return
        self._closing = True
        self.release(self.held_bytes)
        self._transport.abort()

    def close_when_quiet(self) -> None:
        """At shutdown: what is under way may come to its end."""
        if self._is_idle or self._lingers:
            self._hang_up()


def _without_wish(parser: httptools.HttpRequestParser, target: bytes, headers: Mapping[str, str]) -> bytes:
    """The head of a request that wishes for another protocol, as it would be without that."""
    lines = [b"%b %b HTTP/%b" % (parser.get_method(), target, parser.get_http_version().encode())]
    lines += [f"{name}: {text}".encode("latin-1") for name, text in headers.items() if name != "upgrade"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _too_long_a_head() -> Problem:
    return Problem(431, "INVALID_REQUEST", f"{HEADERS_MAX} headers and {HEAD_BYTES_MAX} bytes at most.")


def _too_many_bytes() -> Problem:
    return Problem(503, "UNKNOWN_SERVER_ERROR", "Too many bytes of requests are in memory; try again.")


def _refusal(problem: Problem) -> HttpResponse:
    return HttpResponse(
        status=problem.status, body=problem.document(), content_type=PROBLEM_TYPE, headers=problem.headers
    )
