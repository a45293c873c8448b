"""Sending answers on one connection: small ones gathered into one send, batches straight from their segment files.

Nothing is queued without bound: while a part cannot be sent (`is_blocked`), the connection reads no requests.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Final

from tidemark import portable
from tidemark.storage import FileSlice

INLINE_BYTES_MAX: Final = 32 << 10  # below this one read and one send are cheaper than a sendfile
SENDFILE_BYTES_MAX: Final = 4 << 20  # per call, so that one fast reader cannot keep the loop

Part = bytes | bytearray | memoryview | FileSlice
Parts = Sequence[Part]


class SendingFailed(Exception):
    """The connection cannot be used any more."""


class ResponseWriter:
    __slots__ = (
        "_loop",
        "_progress",
        "_socket_fd",
        "_transport",
        "_waiting",
        "_write_fd",
        "gathered",
        "gathers",
        "parts",
    )

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, progress: Callable[[], None]
    ) -> None:
        """`progress` is called when a socket that could take no more can again; it calls `flush`."""
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._loop = loop
        self._progress = progress
        self._socket_fd: int = transport.get_extra_info("socket").fileno()
        self._write_fd = -1
        self._waiting = False
        self.gathers = False  # whole answers are gathered, until `send_gathered`
        self.gathered: list[bytes | bytearray | memoryview] = []
        self.parts: list[Part] = []  # what could not be sent yet

    @property
    def is_blocked(self) -> bool:
        return bool(self.parts) or self._transport.get_write_buffer_size() > 0

    def send(self, parts: Parts) -> None:
        """Raises SendingFailed."""
        if len(parts) == 1 and not self.parts and not isinstance(parts[0], FileSlice):
            if self.gathers:
                self.gathered.append(parts[0])
            else:
                self._transport.write(parts[0])
            return
        self.send_gathered()
        if sum(map(_length, parts)) <= INLINE_BYTES_MAX:
            try:
                parts = [b"".join(map(_read, parts))]
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
        try:
            while parts and self._transport.get_write_buffer_size() == 0:
                part = parts[0]
                if not isinstance(part, FileSlice):
                    parts.pop(0)
                    self._transport.write(part)
                elif not self._send_file(part):
                    return
        except OSError as error:
            raise SendingFailed(f"sending failed: {error}") from error

    def _send_file(self, part: FileSlice) -> bool:
        try:
            count = min(part.length, SENDFILE_BYTES_MAX)
            sent = portable.send_file(self._socket_fd, part.file.fileno(), part.position, count)
        except BlockingIOError:
            self._wait_writable()
            return False
        if sent == 0:
            raise SendingFailed("a segment ended before the bytes it was said to hold")
        if sent == part.length:
            self.parts.pop(0)
        else:
            self.parts[0] = FileSlice(part.file, part.position + sent, part.length - sent)
        return True

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


def _length(part: Part) -> int:
    return part.length if isinstance(part, FileSlice) else len(part)


def _read(part: Part) -> bytes | bytearray | memoryview:
    if not isinstance(part, FileSlice):
        return part
    data = os.pread(part.file.fileno(), part.length, part.position)
    if len(data) != part.length:
        raise OSError("a segment ended before the bytes it was said to hold")
    return data
