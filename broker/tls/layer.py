"""TLS between a socket's transport and a protocol of ours, which sees a transport like any other.

Why not asyncio's own: it keeps a buffer of 256 KiB for every connection, and does handshakes on the event loop. Here
all connections of a loop share one buffer for what arrives, encrypted data goes to the socket at once, and the costly
step of a handshake runs on a thread.

Back-pressure is the socket's: nothing is kept here in plain text. What the protocol does not want to read yet stays
encrypted, and reading stops; what it writes is encrypted into the transport's buffer, whose size it is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from tidemark.broker.tls.failures import HandshakeFailed, NotTls, reason_of

if TYPE_CHECKING:
    from tidemark.broker.tls.handshakes import Handshakes

log = logging.getLogger(__name__)

# Decrypted in one turn. Producers' records are small (librdkafka's have 3 KB), and each turn costs as much as many of
# them: CPU per GB produced was 3.5 s at 64 KiB, 2.5 at 256 KiB, 2.4 at 1 MiB, which is 2 ms in which others wait.
RECEIVE_BYTES: Final = 512 << 10
# Encrypted at once: OpenSSL keeps as much for the connection from then on. More is not faster (measured: 2.2 GB/s at
# 64 KiB, 1.9 at 16 KiB, 2.0 at 1 MiB).
WRITE_BYTES: Final = 64 << 10
HANDSHAKE_RECORD: Final = 0x16
HANDSHAKE_BYTES_MAX: Final = 256 << 10  # a chain of certificates has a few kilobytes


class TlsLayer(asyncio.BufferedProtocol):
    """Made for each connection, with the protocol above it.

    `protocol.connection_made` is called at once, so that a connection under way counts as one; it writes nothing before
    the handshake is done. `secured` is called then, and may raise HandshakeFailed; `failed` gets the reason of an end.
    """

    def __init__(
        self,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        *,
        server_hostname: str | None = None,
        seconds_max: float,
        secured: Callable[[ssl.SSLObject], None],
        failed: Callable[[str], None],
    ) -> None:
        """`server_hostname`: of the side that connects; without, this side accepts."""
        self.protocol = protocol
        self._handshakes = handshakes
        self._secured = secured
        self._failed = failed
        self._seconds_max = seconds_max
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._is_secure = False
        self._is_stepping = False  # a thread works on the handshake: nothing else may touch what it works on
        self._has_begun = self._has_answered = False
        self._asks_nothing = server_hostname is None and context.verify_mode is ssl.CERT_NONE
        self._wants_data = True
        self._has_said_farewell = False  # the other side has said that it sends no more
        self._ended = False
        self._received_bytes = 0  # before the handshake was done
        self._timer: asyncio.TimerHandle | None = None

    # -- the socket's transport calls these --------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.raw = transport
        self._timer = self._handshakes.loop.call_later(self._seconds_max, self._is_late)
        self.protocol.connection_made(TlsTransport(self))
        if transport.is_closing():
            return  # it was refused
        address = transport.get_extra_info("peername") or ("?",)
        if not self._object.server_side:
            self._step()
        elif not self._handshakes.begin(self, str(address[0])):
            self._fail(HandshakeFailed("too many handshakes are under way"))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._handshakes.buffer

    def buffer_updated(self, nbytes: int) -> None:
        received = self._handshakes.buffer[:nbytes]
        if self._is_secure:
            self._incoming.write(received)
            self._deliver()
            return
        if not self._has_begun and self._object.server_side and received[0] != HANDSHAKE_RECORD:
            self._fail(NotTls(bytes(received[:16])))
            return
        self._has_begun = True
        self._received_bytes += nbytes
        if self._received_bytes > HANDSHAKE_BYTES_MAX:
            self._fail(HandshakeFailed("it sent too much before the handshake was done"))
            return
        self._incoming.write(received)
        self._step()

    def eof_received(self) -> bool:
        if self._is_stepping:
            return True  # found out when the step is done
        if self._is_secure:
            self._end()
        elif self._has_begun or not self._object.server_side:
            self._fail(HandshakeFailed("it closed the connection during the handshake"))
        # Otherwise somebody looked whether the port is open: nothing worth a line.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._stop_timer()
        if not self._is_secure:
            self._handshakes.forget(self)
        self.protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._is_secure:
            self.protocol.resume_writing()

    # -- the handshake -----------------------------------------------------

    def _step(self) -> None:
        """One step, on a thread: it may cost a millisecond, and there may be a crowd of clients. Only the second step
        of a client without a certificate is cheaper than the way to the thread and back."""
        if self._has_answered and self._asks_nothing:
            self._step_here()
            return
        self._is_stepping = True
        self.raw.pause_reading()
        self._handshakes.run(self)

    def _step_here(self) -> None:
        try:
            is_done, error = self.do_step(), None
        except ssl.SSLError as failure:
            is_done, error = False, failure
        self.stepped(is_done, error)

    def do_step(self) -> bool:
        """Called on a thread. Whether the handshake is done."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def stepped(self, is_done: bool, error: BaseException | None) -> None:
        """What `do_step` came to, on the event loop."""
        self._is_stepping = False
        if self._ended:
            return
        self._has_answered = True
        self._flush()  # the reason of a failure, too, is told to the other side
        if error is not None:
            self._fail(error)
        elif is_done:
            self._finish()
        else:
            self.raw.resume_reading()

    def _finish(self) -> None:
        self._stop_timer()
        try:
            self._secured(self._object)
        except HandshakeFailed as error:
            self._fail(error)
            return
        self._is_secure = True
        self._handshakes.forget(self)
        if self._wants_data:
            self.raw.resume_reading()
            self._deliver()  # requests may have come right behind the handshake

    def _is_late(self) -> None:
        self._timer = None
        self._fail(HandshakeFailed(f"the handshake was not done within {self._seconds_max:g} s"))

    def _fail(self, error: BaseException) -> None:
        if self._ended:
            return
        self._ended = True
        self._stop_timer()
        self._failed(reason_of(error))
        if isinstance(error, NotTls) or self._is_stepping:
            self.raw.abort()
        else:
            self.raw.close()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- data --------------------------------------------------------------

    def _deliver(self) -> None:
        """Hand over what has arrived, as long as the protocol wants it."""
        try:
            while self._wants_data and not self._ended and (self._incoming.pending or self._object.pending()):
                buffer = self.protocol.get_buffer(-1)
                assert isinstance(buffer, memoryview)
                if count := self._read(buffer):
                    self.protocol.buffer_updated(count)
                if count < len(buffer):
                    break
            if self._has_said_farewell and self._wants_data:
                self._end()
        except ssl.SSLError as error:
            self._break(error)
        if self._outgoing.pending:
            self._flush()  # an answer to the other side's change of keys, say

    def _read(self, buffer: memoryview) -> int:
        """As many records as there are, up to the size of the buffer: each is read by a call of its own."""
        read, incoming, source = 0, self._incoming, self._object
        size = len(buffer)
        try:
            while read < size and (incoming.pending or source.pending()):
                count: Any = source.read(size - read, buffer[read:])
                if not count:
                    self._has_said_farewell = True
                    break
                read += count
        except ssl.SSLWantReadError:
            pass  # a record has begun
        except ssl.SSLZeroReturnError:
            self._has_said_farewell = True
        return read

    def write(self, data: Any) -> None:
        view = memoryview(data)
        write = self._object.write
        try:
            for at in range(0, len(view), WRITE_BYTES):
                write(view[at : at + WRITE_BYTES])
                self._flush()
        except ssl.SSLError as error:
            self._break(error)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.raw.write(self._outgoing.read())

    def pause_reading(self) -> None:
        self._wants_data = False
        if not self._is_stepping:
            self.raw.pause_reading()

    def resume_reading(self) -> None:
        self._wants_data = True
        if self._is_secure and not self._ended:
            self._handshakes.loop.call_soon(self._go_on)
        elif not self._is_stepping and not self._ended:  # the handshake had to wait
            self.raw.resume_reading()

    def _go_on(self) -> None:
        if self._wants_data and not self._ended:
            self._deliver()
        if self._wants_data and not self._ended:
            self.raw.resume_reading()

    def _end(self) -> None:
        """The other side has said that it sends no more."""
        if not self._ended:
            self._ended = True
            self.protocol.eof_received()
            self.close()

    def _break(self, error: ssl.SSLError) -> None:
        """What arrives is not what was sent."""
        if not self._ended:
            self._ended = True
            self._failed(reason_of(error))
            self.raw.abort()

    def close(self) -> None:
        self._ended = True
        if self._is_secure and not self.raw.is_closing():
            with contextlib.suppress(ssl.SSLError):  # it wants to wait for the other side's farewell; we do not
                self._object.unwrap()
            self._flush()
        self.raw.close()

    def abort(self) -> None:
        self._ended = True
        self.raw.abort()


class TlsTransport(asyncio.Transport):
    """What the protocol sees."""

    __slots__ = ("_layer",)

    def __init__(self, layer: TlsLayer) -> None:
        self._layer = layer

    def write(self, data: Any) -> None:
        self._layer.write(data)

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "ssl_object":
            return self._layer._object
        if name == "plain_buffer":
            return self._layer._handshakes.plain_buffer
        return self._layer.raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._layer._ended or self._layer.raw.is_closing()

    def close(self) -> None:
        self._layer.close()

    def abort(self) -> None:
        self._layer.abort()

    def pause_reading(self) -> None:
        self._layer.pause_reading()

    def resume_reading(self) -> None:
        self._layer.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._layer.raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._layer.raw.get_write_buffer_size()
