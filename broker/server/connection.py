"""One client's connection: frames in, answers out in the order of the requests, memory bounded both ways."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemark import portable
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import CloseConnection
from tidemark.protocol.frames import Framer, FrameTooLarge
from tidemark.storage import FileSlice

if TYPE_CHECKING:
    from tidemark.broker.core.registry import Call
    from tidemark.broker.server.server import Server

log = logging.getLogger(__name__)

IN_FLIGHT_MAX: Final = 256  # answers awaited on one connection before we stop reading from it
TOGETHER_MAX: Final = 16  # answers that leave in one send; more would keep the first of them waiting
INLINE_BYTES_MAX: Final = 32 << 10  # below this one read and one send are cheaper than a sendfile
SENDFILE_BYTES_MAX: Final = 4 << 20  # per call, so that one fast reader cannot keep the loop

LOOPBACK: Final = ("127.0.0.1", "::1")

Part = bytes | bytearray | memoryview | FileSlice
Parts = Sequence[Part]
Answer = Parts | None  # None: the request has no answer (acks=0)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Server, listener: str, handle: Callable[[Connection, bytearray], None]) -> None:
        self.server = server
        self.listener = listener
        self.peer = "?"
        self.client_id: str | None = None
        self.client_id_field = b"?"  # how this client id looks in a request, with its length: for the dispatcher
        self.calls: dict[int, Call] = {}  # by API key and version, likewise for the dispatcher
        self.client_software = ""
        self.active_tick = server.tick
        self._handle = handle
        self._framer = Framer(server.scratch, limit_bytes=server.request_bytes_max)
        self._answers: list[Deferred[Answer]] = []  # not deques, which cost 600 bytes each when empty
        self._out: list[Part] = []
        self._ready: list[bytes | bytearray | memoryview] = []
        self._reading = True
        self._taking = False
        self._stopping = False
        self._hang_up = False
        self._closing = False
        self._reserved_bytes = 0
        self._waiting_for_memory = False
        self._write_fd = -1
        self._waiting_writable = False

    # -- the transport calls these ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=0)
        address = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"
        connected = transport.get_extra_info("socket")
        if self.host in LOOPBACK:
            # Pacing protects networks. On the way to ourselves it only costs: under BBR, where the system uses it, a
            # consumer got three quarters of the throughput for twice the CPU.
            portable.stop_pacing(connected)
        self._socket_fd: int = connected.fileno()
        if refusal := self.server.admit(self):
            log.warning("refused a connection from %s: %s", self.peer, refusal)
            self._closing = True
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_tick = self.server.tick
        self._framer.received(nbytes)
        self._take_frames()

    def eof_received(self) -> bool:
        if self._framer.mid_frame and not self._closing:
            log.info("%s closed the connection in the middle of a request", self.peer)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._out.clear()
        answers, self._answers = self._answers, []
        for later in answers:
            if later.abandon is not None:
                later.abandon()
        self.server.memory.release(self._reserved_bytes)
        if self._write_fd >= 0:
            if self._waiting_writable:
                self.server.loop.remove_writer(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = -1
        self.server.forget(self)

    def pause_writing(self) -> None:
        pass  # write limits are zero: _flush() looks at the transport's buffer itself

    def resume_writing(self) -> None:
        self.active_tick = self.server.tick
        self._flush()
        self._carry_on()

    @property
    def is_closed(self) -> bool:
        return self._closing

    # -- requests ----------------------------------------------------------

    def _take_frames(self) -> None:
        if self._taking:
            return  # an answer that was ready at once got us here: the loop below goes on
        self._taking = True
        try:
            framer, handle = self._framer, self._handle
            while (frame := framer.next_frame()) is not None:
                handle(self, frame)
                if self._closing:
                    return
                if self._out or self._answers or len(self._ready) >= TOGETHER_MAX:
                    self._send_ready()
                    if self._must_wait():
                        framer.hold()
                        self._stop_reading()
                        break
        except FrameTooLarge as error:
            self.fail(str(error))
        except CloseConnection as error:
            self.fail(str(error))
        finally:
            self._taking = False
            if self._ready:
                self._send_ready()
        if self._framer.frame_size != self._reserved_bytes:
            self._account()

    def _account(self) -> None:
        """A frame under way counts against queued.max.request.bytes, from its announcement to its end."""
        self.server.memory.release(self._reserved_bytes)
        self._reserved_bytes = 0
        size = self._framer.frame_size
        if not size or self._closing:
            return
        self._waiting_for_memory = True
        self.server.memory.reserve(size, self._memory_granted)
        if self._waiting_for_memory:
            self._stop_reading()

    def _memory_granted(self, size: int) -> bool:
        if self._closing:
            return False
        self._waiting_for_memory = False
        self._reserved_bytes = size
        self._carry_on()
        return True

    def _must_wait(self) -> bool:
        return (
            bool(self._out)
            or self._waiting_for_memory
            or len(self._answers) >= IN_FLIGHT_MAX
            or self.transport.get_write_buffer_size() > 0
        )

    def _stop_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self.transport.pause_reading()

    def _carry_on(self) -> None:
        if self._hang_up:
            self._hang_up_if_quiet()
        if self._reading or self._closing or self._stopping or self._must_wait():
            return
        self._reading = True
        self._take_frames()
        if self._reading and not self._closing:
            self.transport.resume_reading()

    # -- answers -----------------------------------------------------------

    def answer(self, parts: Answer) -> None:
        """The answer to the request just handled is known already."""
        if self._answers:
            done: Deferred[Answer] = Deferred()
            done.resolve(parts)
            self._answers.append(done)
        elif parts is not None:
            self._send(parts)

    def answer_whole(self, answer: bytearray) -> None:
        """As `answer`, for the most common kind: one piece, for a request that came while none was waiting."""
        if self._answers or self._out or self._closing or not self._taking:
            self.answer((answer,))
        else:
            self._ready.append(answer)

    def answer_later(self, later: Deferred[Answer]) -> None:
        self._answers.append(later)
        later.then(self._answered)

    def _answered(self, _: Answer) -> None:
        answers = self._answers
        while answers and answers[0].done:
            answers.pop(0).then(self._send_if_any)
        self._carry_on()

    def _send_if_any(self, parts: Answer) -> None:
        if parts is not None:
            self._send(parts)

    def _send(self, parts: Parts) -> None:
        if self._closing:
            return
        if len(parts) == 1 and not self._out and not isinstance(parts[0], FileSlice):
            if self._taking:
                self._ready.append(parts[0])
            else:
                self.transport.write(parts[0])
            return
        self._send_ready()
        if sum(map(_length, parts)) <= INLINE_BYTES_MAX:
            try:
                parts = [b"".join(map(_read, parts))]
            except OSError as error:
                self._abort(f"reading a segment failed: {error}")
                return
        self._out.extend(parts)
        self._flush()

    def _send_ready(self) -> None:
        """Answers to requests that arrived together leave together: a system call costs more than most of them."""
        ready = self._ready
        if ready:
            self._ready = []
            if not self._closing or not self.transport.is_closing():
                self.transport.write(ready[0] if len(ready) == 1 else b"".join(ready))

    def _flush(self) -> None:
        out = self._out
        try:
            while out and not self._closing and self.transport.get_write_buffer_size() == 0:
                part = out[0]
                if not isinstance(part, FileSlice):
                    out.pop(0)
                    self.transport.write(part)
                elif not self._send_file(part):
                    return
        except OSError as error:
            self._abort(f"sending failed: {error}")

    def _send_file(self, part: FileSlice) -> bool:
        try:
            count = min(part.length, SENDFILE_BYTES_MAX)
            sent = portable.send_file(self._socket_fd, part.file.fileno(), part.position, count)
        except BlockingIOError:
            self._wait_writable()
            return False
        if sent == 0:
            self._abort("a segment ended before the bytes it was said to hold")
            return False
        self.active_tick = self.server.tick
        if sent == part.length:
            self._out.pop(0)
        else:
            self._out[0] = FileSlice(part.file, part.position + sent, part.length - sent)
        return True

    def _wait_writable(self) -> None:
        if self._write_fd < 0:
            self._write_fd = os.dup(self._socket_fd)  # the transport owns the socket's own place in the selector
        if not self._waiting_writable:
            self._waiting_writable = True
            self.server.loop.add_writer(self._write_fd, self._writable)

    def _writable(self) -> None:
        self._waiting_writable = False
        self.server.loop.remove_writer(self._write_fd)
        self._flush()
        self._carry_on()

    # -- the end -----------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Hang up because of what the client sent. Answers that are ready go out first."""
        log.warning("closing the connection from %s: %s", self.peer, reason)
        self._closing = True
        self.transport.close()

    def _abort(self, reason: str) -> None:
        log.info("closing the connection to %s: %s", self.peer, reason)
        self._closing = True
        self._out.clear()
        self.transport.abort()

    def expire(self) -> None:
        self._abort("it was idle for longer than connections.max.idle.ms")

    @property
    def is_waiting_for_us(self) -> bool:
        """A long poll under way is not idleness; an answer that nobody reads is."""
        return bool(self._answers) and not self._out

    def stop_taking(self) -> None:
        """At shutdown: what was accepted is answered, nothing more is read."""
        self._stopping = True
        self._stop_reading()

    def close_when_quiet(self) -> None:
        """At the end: hang up once everything that is owed is sent."""
        self._hang_up = True
        self._hang_up_if_quiet()

    def _hang_up_if_quiet(self) -> None:
        if self._hang_up and not self._closing and self._is_quiet():
            self._closing = True
            self.transport.close()

    def _is_quiet(self) -> bool:
        return not (self._answers or self._out or self.transport.get_write_buffer_size())


def _length(part: Any) -> int:
    return part.length if isinstance(part, FileSlice) else len(part)


def _read(part: Any) -> Any:
    if not isinstance(part, FileSlice):
        return part
    data = os.pread(part.file.fileno(), part.length, part.position)
    if len(data) != part.length:
        raise OSError("a segment ended before the bytes it was said to hold")
    return data
