"""Sending answers on one connection: small ones gathered into one send, batches straight from their segment files.

What is long leaves in pieces, and others have their turn between them.

What is sent from a file is in the page cache, or another thread brings it there first: the event loop never waits for a
disk.

Nothing is queued without bound: while a part cannot be sent (`is_blocked`), the connection reads no requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeGuard

from tidemark.storage import FileSlice

INLINE_BYTES_MAX: Final = 32 << 10  # below this one read and one send are cheaper than a sendfile
SENDFILE_BYTES_MAX: Final = 1 << 20  # per call, so that one fast reader cannot keep the loop
PIECE_BYTES: Final = 64 << 10
MEMORY_PIECE_BYTES: Final = 256 << 10  # of a long answer: what the socket does not take at once is copied
TURN_BYTES_MAX: Final = 4 << 20  # for one connection, two milliseconds, before others have their turn

Part = bytes | bytearray | memoryview | FileSlice
Parts = Sequence[Part]


class SendingFailed(Exception):
    """The connection cannot be used any more."""


class ResponseWriter:
    __slots__ = (
        "_cached_bytes",
        "_failure",
        "_has_next_turn",
        "_loading",
        "_loop",
        "_progress",
        "_readers",
        "_reads_cold",
        "_socket_fd",
        "_transport",
        "_turn_bytes",
        "_waiting",
        "_write_fd",
        "gathered",
        "gathers",
        "parts",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        progress: Callable[[], None],
        readers: Executor,
    ) -> None:
        """`progress` is called when a socket that could take no more can again, or when `readers` have brought into the
        page cache what was not there; it calls `flush`."""
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._loop = loop
        self._progress = progress
        self._readers = readers
        self._cached_bytes = 0  # how many of the next part's bytes are known to be in the page cache
        self._loading = False  # the next part, by another thread
        self._failure: BaseException | None = None  # of that
        self._reads_cold = False  # and the kernel reads ahead for it
        self._socket_fd: int = transport.get_extra_info("socket").fileno()
        self._write_fd = -1
        self._waiting = False
        self._turn_bytes = 0  # sent since the last of its turns began
        self._has_next_turn = False  # what is left goes on then
        self.gathers = False  # whole answers are gathered, until `send_gathered`
        self.gathered: list[bytes | bytearray | memoryview] = []
        self.parts: list[Part] = []  # what could not be sent yet

    @property
    def is_blocked(self) -> bool:
        return bool(self.parts) or self._transport.get_write_buffer_size() > 0

    def send(self, parts: Parts) -> None:
        """Raises SendingFailed."""
        if len(parts) == 1 and not self.parts and _is_short(answer := parts[0]):
            if self.gathers:
                self.gathered.append(answer)
            elif not self._transport.is_closing():  # or asyncio complains of each answer to a client that is gone
                self._transport.write(answer)
            return
        self.send_gathered()
        size = sum(map(_length, parts))
        if size <= INLINE_BYTES_MAX:
            try:
                parts = [_joined(parts, size)]
            except BlockingIOError:
                pass  # some of it is not in the page cache
            except OSError as error:
                raise SendingFailed(f"reading a segment failed: {error}") from error
        self.parts.extend(parts)
        self.flush()

    def send_gathered(self) -> None:
        """Answers to requests that arrived together leave together: a system call costs more than most of them."""
        gathered = self.gathered
        if gathered:
            self.gathered = []
            if not self._transport.is_closing():
                self._transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))

    def flush(self) -> None:
        """Send as much as the socket takes. Raises SendingFailed."""
        parts = self.parts
        if self._has_next_turn:
            return
        if self._failure is not None:
            raise SendingFailed(f"reading a segment failed: {self._failure}")
        try:
            if self._transport.is_closing():
                return
            while parts and not self._loading and self._transport.get_write_buffer_size() == 0:
                part = parts[0]
                if not (self._send_file(part) if isinstance(part, FileSlice) else self._send_piece(part)):
                    return
        except OSError as error:
            raise SendingFailed(f"sending failed: {error}") from error

    def leave_to_transport(self) -> None:
        """It is about to be closed, and sends first what it has: all that does not come from a file."""
        while self.parts and not isinstance(part := self.parts[0], FileSlice):
            self.parts.pop(0)
            self._transport.write(part)

    def _send_piece(self, part: bytes | bytearray | memoryview) -> bool:
        """Whoever reads fast enough would keep the loop for tens of megabytes, and so would the copies for others."""
        if self._turn_is_over():
            return False
        if len(part) <= MEMORY_PIECE_BYTES:
            self.parts.pop(0)
            self._transport.write(part)
            self._turn_bytes += len(part)
            return True
        left = memoryview(part)
        self._transport.write(left[:MEMORY_PIECE_BYTES])
        self.parts[0] = left[MEMORY_PIECE_BYTES:]
        self._turn_bytes += MEMORY_PIECE_BYTES
        return True

    def _turn_is_over(self) -> bool:
        if self._turn_bytes < TURN_BYTES_MAX:
            return False
        self._has_next_turn = True
        self._loop.call_soon(self._begin_turn)
        return True

    def _begin_turn(self) -> None:
        self._has_next_turn = False
        self._turn_bytes = 0
        self._progress()

    def _send_file(self, part: FileSlice) -> bool:
        if self._turn_is_over():
            return False
        if not self._cached_bytes:
            if not part.is_cached(bytes_max=SENDFILE_BYTES_MAX, strictly=self._reads_cold):
                self._load(part)
                return False
            self._cached_bytes = min(part.length, SENDFILE_BYTES_MAX)
        try:
            count = self._cached_bytes
            sent = part.file.send_to(self._socket_fd, part.position, count)
        except BlockingIOError:
            self._wait_writable()
            return False
        if sent == 0:
            raise SendingFailed("a segment ended before the bytes it was said to hold")
        self._cached_bytes -= sent
        self._turn_bytes += sent
        if sent == part.length:
            self.parts.pop(0)
        else:
            self.parts[0] = FileSlice(part.file, part.position + sent, part.length - sent)
        return True

    def _load(self, part: FileSlice) -> None:
        """Off the event loop: while the disk seeks, others are served. This connection's answers keep their order, and
        its requests wait as they do for a socket that takes no more."""
        self._loading = self._reads_cold = True
        loading = self._loop.run_in_executor(self._readers, partial(part.load, bytes_max=SENDFILE_BYTES_MAX))
        loading.add_done_callback(self._loaded)

    def _loaded(self, done: asyncio.Future[None]) -> None:
        self._loading = False
        if not self.parts:
            return  # the connection was closed meanwhile
        if not done.cancelled() and (failure := done.exception()) is not None:
            self._failure = failure
        elif not done.cancelled():
            # Not asked again, so that it gets on even where memory is so short that the bytes are forgotten already.
            part = self.parts[0]
            assert isinstance(part, FileSlice), "what is loaded is sent next"
            self._cached_bytes = min(part.length, SENDFILE_BYTES_MAX)
        self._progress()

    def _wait_writable(self) -> None:
        if self._write_fd < 0:
            self._write_fd = os.dup(self._socket_fd)  # the transport owns the socket's own place in the selector
        if not self._waiting:
            self._waiting = True
            self._loop.add_writer(self._write_fd, self._writable)

    def _writable(self) -> None:
        self._waiting = False
        self._loop.remove_writer(self._write_fd)
        self._progress()

    def close(self) -> None:
        """The connection is gone: hold nothing."""
        self.parts.clear()
        if self._write_fd >= 0:
            if self._waiting:
                self._loop.remove_writer(self._write_fd)
            os.close(self._write_fd)
            self._write_fd = -1


class EncryptedWriter(ResponseWriter):
    """For TLS, and for sockets that are simulated: what is sent must be read first, a piece at a time, as long as the
    socket takes it at once."""

    __slots__ = ("_shared",)

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        progress: Callable[[], None],
        readers: Executor,
    ) -> None:
        super().__init__(transport, loop, progress, readers)
        # Shared where what is written is encrypted at once, so that it may be used again.
        self._shared: memoryview | None = transport.get_extra_info("plain_buffer")

    def _send_file(self, part: FileSlice) -> bool:
        if self._turn_is_over():
            return False
        size = min(part.length, PIECE_BYTES)
        piece = memoryview(bytearray(size)) if self._shared is None else self._shared[:size]
        try:
            got = self._read(part, piece)
        except BlockingIOError:
            self._load(part)
            return False
        if got != size:
            raise SendingFailed("a segment ended before the bytes it was said to hold")
        self._transport.write(piece)
        self._turn_bytes += size
        if size == part.length:
            self.parts.pop(0)
        else:
            self.parts[0] = FileSlice(part.file, part.position + size, part.length - size)
        return True

    def _read(self, part: FileSlice, into: memoryview) -> int:
        if not self._cached_bytes:
            return part.file.read_cached_into(into, part.position)
        # Another thread has just brought it there: it is read in any case, to get on.
        self._cached_bytes = max(self._cached_bytes - len(into), 0)
        return part.file.read_into(into, part.position)


def _is_short(part: Part) -> TypeGuard[bytes | bytearray | memoryview]:
    return not isinstance(part, FileSlice) and len(part) <= MEMORY_PIECE_BYTES


def _length(part: Part) -> int:
    return part.length if isinstance(part, FileSlice) else len(part)


def _joined(parts: Parts, size: int) -> bytearray:
    """All in one piece. Raises BlockingIOError if that would wait for the disk."""
    joined = bytearray(size)
    view, at = memoryview(joined), 0
    for part in parts:
        end = at + _length(part)
        if not isinstance(part, FileSlice):
            view[at:end] = part
        elif part.file.read_cached_into(view[at:end], part.position) != part.length:
            raise OSError("a segment ended before the bytes it was said to hold")
        at = end
    return joined
