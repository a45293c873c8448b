"""One client's connection: frames in, answers out in the order of the requests, memory bounded both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidemark import portable
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.core.principal import ANONYMOUS
from tidemark.broker.logs.events import about
from tidemark.broker.server.response_writer import (
    MEMORY_PIECE_BYTES,
    EncryptedWriter,
    Parts,
    ResponseWriter,
    SendingFailed,
)
from tidemark.environment import monotonic
from tidemark.protocol.frames import Framer, FrameTooLarge

if TYPE_CHECKING:
    from tidemark.broker.core.registry import Call
    from tidemark.broker.server.server import Server

IN_FLIGHT_MAX: Final = 256  # answers awaited on one connection before we stop reading from it
TOGETHER_MAX: Final = 16  # answers that leave in one send; more would keep the first of them waiting
FRAME_BYTES_PER_SECOND_MIN: Final = 64 << 10
ACCOUNTED_BYTES: Final = 64 << 10  # steps in which a frame under way is counted: the scratch buffer costs no memory

LOOPBACK: Final = ("127.0.0.1", "::1")

Encoded = Parts | None  # an answer in bytes; None: the request has no answer (acks=0)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, server: Server, listener: str, handle: Callable[[Connection, bytearray], None]) -> None:
        self.server = server
        self.listener = listener
        self.peer = "?"
        self.client_id: str | None = None
        self.client_id_field = b"?"  # how this client id looks in a request, with its length: for the dispatcher
        self.calls: dict[int, Call] = {}  # by API key and version, likewise for the dispatcher
        self.api = ""  # of the request that is being handled, or was last
        self.client_software = ""
        self.principal = ANONYMOUS
        self.login: Any = None  # on SASL listeners: how far its login is
        self.meter: Any = None  # what its client uses, while there are quotas
        self.throttle_seconds = 0.0  # for the request that is being handled
        self.held_at = 0.0  # since when requests that have arrived wait for its next turn; 0: none does
        self.descriptor = -1  # of its socket, while that can wait for those of nodes
        self.is_peer = False  # another broker is at the other end
        self.active_tick = server.tick
        self._handle = handle
        self._memory = server.memory_of(listener)
        limit_bytes = server.first_request_bytes_max.get(listener, server.request_bytes_max)
        self._framer = Framer(server.scratch, limit_bytes=limit_bytes, limit_of=server.limit_of(listener))
        self._frame_watched = 0  # which of the framer's frames the sweep has seen under way
        self._frame_ticks = 0  # and for how many of its rounds
        # With their APIs. Not a deque, which costs 600 bytes when empty.
        self._unanswered: list[tuple[Deferred[Encoded], str]] = []
        self._reading = True
        self._handling = False
        self._stopping = False
        self._hang_up = False
        self._closing = False
        self._reserved_bytes = 0
        self._blocked_at = 0.0  # since when an answer cannot be sent
        self._blocked_api = ""
        self._sending_api = ""  # of an answer that was waited for
        self._waiting_for_memory = False
        self._working = False  # on a request so large that others have their turn in between
        self._muted: asyncio.TimerHandle | None = None  # its client is over a quota
        self._resuming = False  # it waits for its turn
        self._in_turn: Callable[[Callable[[], None]], object] = server.turns_of(listener)

    # -- the transport calls these ----------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        encrypts = transport.get_extra_info("ssl_object") is not None
        takes_files = not encrypts and transport.get_extra_info("socket").fileno() >= 0
        kind = ResponseWriter if takes_files else EncryptedWriter
        self._writer = kind(transport, self.server.loop, self._writable, self.server.readers)
        address = transport.get_extra_info("peername") or ("?", 0)
        self.host = str(address[0])
        self.peer = f"{address[0]}:{address[1]}"
        if self.host in LOOPBACK:
            # Pacing protects networks. On the way to ourselves it only costs: under BBR, where the system uses it, a
            # consumer got three quarters of the throughput for twice the CPU.
            portable.stop_pacing(transport.get_extra_info("socket"))
        self.server.join_crowd(self)
        if refusal := self.server.register(self):
            self.server.log.warning(
                "refused a connection from %s: %s", self.peer, refusal, extra=about(**self.circumstances)
            )
            self._closing = True
            transport.abort()
            return
        admission = self.server.admit(self)
        if admission.is_refused:
            self._turn_away(admission.seconds)
        elif admission.seconds:
            self.mute(admission.seconds)
        if takes_files and not self._reading:
            self.server.loop.call_soon(self._stay_paused)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self.active_tick = self.server.tick
        self._framer.received(nbytes)
        self._handle_frames()

    def eof_received(self) -> bool:
        if self._framer.mid_frame and not self._closing:
            self.server.log.info(
                "%s closed the connection in the middle of a request", self.peer, extra=about(**self.circumstances)
            )
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        unanswered, self._unanswered = self._unanswered, []
        for deferred, _ in unanswered:
            if deferred.abandon is not None:
                deferred.abandon()
        self._memory.release(self._reserved_bytes, self)
        self._framer.clear()  # this is part of a cycle, which waits for Python's collector
        if self._muted is not None:
            self._muted.cancel()
        self._writer.close()
        self.server.forget(self)

    def pause_writing(self) -> None:
        """Write limits are zero: some of what was just written is in the transport's buffer."""
        self._note_blocked()

    def resume_writing(self) -> None:
        self._writable()

    @property
    def circumstances(self) -> dict[str, Any]:
        """For the log."""
        who = None if self.principal is ANONYMOUS else str(self.principal)
        return {"listener": self.listener, "client": self.peer, "client_id": self.client_id, "principal": who}

    @property
    def is_closed(self) -> bool:
        return self._closing

    # -- requests ----------------------------------------------------------

    def _handle_frames(self) -> None:
        if self._handling:
            return  # an answer that was ready at once got us here: the loop below goes on
        writer = self._writer
        self._handling = writer.gathers = True
        try:
            framer = self._framer
            deadline = 0.0
            while (frame := framer.next_frame()) is not None:
                self._handle(self, frame)
                if self._closing:
                    return
                if framer.has_more:
                    now = monotonic()
                    deadline = deadline or now + self.server.turn.slice_seconds
                    if now >= deadline or self._muted is not None:
                        self.held_at = now
                        framer.hold()
                        self._stop_reading()
                        self._resume_soon()  # which waits on, if it must
                        break
                if self._unanswered or writer.parts or len(writer.gathered) >= TOGETHER_MAX:
                    writer.send_gathered()
                    if self._must_wait():
                        framer.hold()
                        self._stop_reading()
                        break
        except (FrameTooLarge, CloseConnection) as error:
            self.fail(str(error))
        except Exception:
            # We are in another connection's call, perhaps: its caller must not see this error.
            self.server.log.exception("a request from %s failed", self.peer, extra=about(**self.circumstances))
            self.fail("a request failed here; see the log")
        finally:
            self._handling = writer.gathers = False
            if writer.gathered:
                writer.send_gathered()
        arrived = self._framer.arrived_bytes
        if arrived - self._reserved_bytes >= ACCOUNTED_BYTES or arrived < self._reserved_bytes:
            self._account(arrived)

    def _account(self, arrived_bytes: int) -> None:
        """What has arrived of a frame counts against queued.max.request.bytes until the frame is complete."""
        if arrived_bytes < self._reserved_bytes:  # it is another frame, or none
            self._memory.release(self._reserved_bytes, self)
            self._reserved_bytes = 0
        if self._closing:
            return
        has_room = self._memory.count(arrived_bytes - self._reserved_bytes, self)
        self._reserved_bytes = arrived_bytes
        if not has_room and not self._waiting_for_memory:
            self._waiting_for_memory = True
            self._stop_reading()
            self._memory.await_room(self)

    def count_waiting(self, size_bytes: int) -> None:
        """A whole request that waits in memory counts likewise, until `release_waiting`."""
        self._memory.count(size_bytes, self)
        if self._memory.is_exceeded and not self._waiting_for_memory and not self._closing:
            self._waiting_for_memory = True
            self._stop_reading()
            self._memory.await_room(self)

    def release_waiting(self, size_bytes: int) -> None:
        self._memory.release(size_bytes, self)

    def room_granted(self) -> bool:
        """There is room for the rest of the frame. False: it is not wanted any more."""
        if self._closing:
            return False
        self._waiting_for_memory = False
        self._resume_soon()
        return True

    def sweep(self, *, tick_seconds: float, seconds_max: float) -> None:
        """Called by the server every `tick_seconds`: close a connection whose request does not come to its end, or
        whose client has hung up while it was muted, which is not seen without reading."""
        framer = self._framer
        if self._muted is not None and not self._closing and not framer.has_more and self._has_hung_up():
            self._abort("its client has hung up")
            return
        if not framer.mid_frame or not self._reading or self._closing:
            return
        if self._frame_watched != framer.begun:
            self._frame_watched, self._frame_ticks = framer.begun, 0
        self._frame_ticks += 1
        silent = (self.server.tick - self.active_tick) * tick_seconds >= seconds_max
        slow = self._frame_ticks * tick_seconds >= seconds_max + framer.frame_size / FRAME_BYTES_PER_SECOND_MIN
        if silent or slow:
            self._abort(f"{framer.arrived_bytes} of a request's {framer.frame_size} bytes came, and then too little")

    def _has_hung_up(self) -> bool:
        descriptor = self.transport.get_extra_info("socket").fileno()
        return descriptor >= 0 and portable.has_hung_up(descriptor)

    def _must_wait(self) -> bool:
        return (
            self._waiting_for_memory
            or self._working
            or self._muted is not None
            or len(self._unanswered) >= IN_FLIGHT_MAX
            or self._writer.is_blocked
        )

    def handle_with(
        self, handle: Callable[[Connection, bytearray], None], *, request_bytes_max: int | None = None
    ) -> None:
        """From the next request on."""
        self._handle = handle
        if request_bytes_max is not None:
            self._framer.limit_bytes = request_bytes_max

    def begin_work(self) -> None:
        """Handle no further request before `end_work`: they are handled in order, and one client has one long job."""
        self._working = True

    def end_work(self) -> None:
        self._working = False
        if not self._reading:
            self._resume_soon()

    def mute(self, seconds: float) -> None:
        """Handle no further request for so long (KIP-219). Answers that are owed go out all the same."""
        if self._closing:
            return
        until = self.server.loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = self.server.loop.call_at(until, self._unmute)
        self._stop_reading()

    def _unmute(self) -> None:
        self._muted = None
        self._resume()

    def become_peer(self) -> None:
        """It has turned out to be another broker's."""
        if not self.is_peer:
            self.is_peer = True
            self.meter = None
            self.server.leave_crowd(self)
            self._in_turn = self.server.loop.call_soon

    def _turn_away(self, seconds: float) -> None:
        """Its address connects too often: it is not read from, and closed after a while."""
        self.server.log.info(
            "%s connects too often: its connection is closed", self.host, extra=about(**self.circumstances)
        )
        self._stop_reading()
        self._stopping = True
        self._muted = self.server.loop.call_later(seconds, self.transport.abort)

    def _stop_reading(self) -> None:
        if self._reading and not self._closing:
            self._reading = False
            self.transport.pause_reading()

    def _stay_paused(self) -> None:
        """Before Python 3.11.4 a transport begins to read after `connection_made`, though it was paused there, and then
        thinks that it does not: it is told to do both."""
        if not self._reading and not self._closing:
            self.transport.resume_reading()
            self.transport.pause_reading()

    def _resume_soon(self) -> None:
        if not self._resuming:
            self._resuming = True
            self._in_turn(self._resume)

    def _resume(self) -> None:
        """Something that we waited for has happened: handle the frames that we hold, and read on."""
        self._resuming = False
        if self._hang_up:
            self._hang_up_if_quiet()
        if self._reading or self._closing or self._stopping or self._must_wait():
            return
        self._reading = True
        held_at = self.held_at
        self._handle_frames()
        if self.held_at == held_at:
            self.held_at = 0.0  # what waited is handled
        if self._reading and not self._closing:
            self.transport.resume_reading()

    # -- answers -----------------------------------------------------------

    def answer(self, parts: Encoded) -> None:
        """The answer to the request just handled is known already."""
        if self._unanswered:
            done: Deferred[Encoded] = Deferred()
            done.resolve(parts)
            self._unanswered.append((done, self.api))
        elif parts is not None:
            self._send(parts)

    def answer_whole(self, answer: bytearray) -> None:
        """As `answer`, for the most common kind: one piece, for a request that came while none was waiting."""
        writer = self._writer
        is_long = len(answer) > MEMORY_PIECE_BYTES
        if self._unanswered or writer.parts or self._closing or not writer.gathers or is_long:
            self.answer((answer,))
        else:
            writer.gathered.append(answer)

    def answer_deferred(self, deferred: Deferred[Encoded]) -> None:
        self._unanswered.append((deferred, self.api))
        deferred.then(self._answered)

    def _answered(self, _: Encoded) -> None:
        unanswered = self._unanswered
        while unanswered and unanswered[0][0].done:
            deferred, self._sending_api = unanswered.pop(0)
            deferred.then(self._send_if_any)
            self._sending_api = ""
        if self._hang_up or not self._reading:
            # Not here: this is the call that completed the answer, a producer's perhaps, and it has its own work.
            self._resume_soon()

    def _send_if_any(self, parts: Encoded) -> None:
        if parts is not None:
            self._send(parts)

    def _send(self, parts: Parts) -> None:
        if self._closing:
            return
        try:
            self._writer.send(parts)
        except SendingFailed as error:
            self._abort(str(error))
        if self._writer.parts:
            self._note_blocked()

    def _note_blocked(self) -> None:
        if not self._blocked_at:
            self._blocked_at, self._blocked_api = monotonic(), self._sending_api or self.api

    def _writable(self) -> None:
        self.active_tick = self.server.tick
        if not self._closing:
            try:
                self._writer.flush()
            except SendingFailed as error:
                self._abort(str(error))
            if self._blocked_at and not self._writer.is_blocked:
                self.server.note_slow_send(self._blocked_api, monotonic() - self._blocked_at)
                self._blocked_at = 0.0
        self._resume()

    # -- the end -----------------------------------------------------------

    def fail(self, reason: str) -> None:
        """Hang up because of what the client sent. Answers that are ready go out first."""
        if self._closing:
            return
        self.server.log.warning(
            "closing the connection from %s: %s", self.peer, reason, extra=about(**self.circumstances)
        )
        self.hang_up()

    def hang_up(self) -> None:
        """The reason is logged already. Answers that are ready go out first."""
        if not self._closing:
            self._writer.send_gathered()
            self._writer.leave_to_transport()
            self._closing = True
            self.transport.close()

    def _abort(self, reason: str) -> None:
        self.server.log.info("closing the connection to %s: %s", self.peer, reason, extra=about(**self.circumstances))
        self._closing = True
        self._writer.parts.clear()
        self.transport.abort()

    def expire(self) -> None:
        self._abort("it was idle for longer than connections.max.idle.ms")

    @property
    def is_waiting_for_us(self) -> bool:
        """A long poll under way is not idleness; an answer that the client does not read is."""
        return bool(self._unanswered) and not self._writer.parts

    def stop_reading(self) -> None:
        """At shutdown: what was accepted is answered, nothing more is read."""
        self._stopping = True
        self._stop_reading()

    def close_when_quiet(self) -> None:
        """At the end: hang up once everything that is owed is sent."""
        self._hang_up = True
        self._hang_up_if_quiet()

    def _hang_up_if_quiet(self) -> None:
        if self._hang_up and not self._closing and not self._unanswered and not self._writer.is_blocked:
            self._closing = True
            self.transport.close()
