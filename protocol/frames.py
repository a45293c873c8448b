"""Cutting a byte stream into frames: a four-byte length, then that many bytes. No sockets here.

Idle connections hold no buffer: all of them receive into one scratch buffer, which is safe because the event loop hands
over what arrived before it receives again. A frame that does not end there gets a buffer of its own, and the rest is
received straight into it. A buffer grows with what arrives, to four times as much at most, so that a length alone costs
no memory. A few of these buffers are kept for the next: memory fresh from the system costs as much as filling it.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

SCRATCH_BYTES: Final = 64 << 10
BUFFER_BYTES_MIN: Final = 16 << 10
GROWTH_FACTOR: Final = 4
SPARES_MAX: Final = 12  # a connection may have five large requests under way
SPARE_BYTES_MAX: Final = 2 << 20

_length_at = struct.Struct(">i").unpack_from


class FrameTooLarge(Exception):
    """The length prefix is negative or over the limit: what follows cannot be trusted."""


def _about_length(size: int, first: bytes) -> str:
    if first.startswith(b"\x16\x03"):
        return "it speaks TLS, and this listener does not"
    return f"a frame of {size} bytes was announced (first bytes {first.hex()})"


class Scratch:
    """The receive buffer that all of one event loop's connections share."""

    def __init__(self, size_bytes: int = SCRATCH_BYTES) -> None:
        self.data = bytearray(size_bytes)
        self.view = memoryview(self.data)
        self._spares: deque[bytearray] = deque(maxlen=SPARES_MAX)

    def give_back(self, frame: bytearray) -> None:
        """Its handler is done with this frame, but others may still hold views of it."""
        if len(frame) <= SPARE_BYTES_MAX:
            self._spares.append(frame)

    def take(self, size: int, *, arrived_bytes: int) -> bytearray:
        """A buffer of `size` bytes at most, whatever they are, for a frame of which so many have arrived."""
        for _ in range(len(self._spares)):
            spare = self._spares.popleft()
            try:
                last = spare.pop()  # refused while a view of it exists
            except BufferError:
                self._spares.append(spare)
                continue
            if len(spare) < size:
                spare.append(last)
            else:
                del spare[size:]
            return spare
        return bytearray(min(size, max(GROWTH_FACTOR * arrived_bytes, BUFFER_BYTES_MIN)))


class Framer:
    """Ask `buffer()` where to receive, say `received(n)`, then take the frames."""

    __slots__ = (
        "_backlog",
        "_filled",
        "_frame",
        "_head",
        "_lent",
        "_limit_of",
        "_scratch",
        "_size",
        "_whole",
        "begun",
        "limit_bytes",
    )

    def __init__(self, scratch: Scratch, *, limit_bytes: int, limit_of: Callable[[int], int] | None = None) -> None:
        """`limit_of`: for requests, the limit of an API key, if that is less than `limit_bytes`. What arrives in one
        piece is not held to it: it is no longer than the scratch buffer."""
        self._scratch = scratch
        self.limit_bytes = limit_bytes
        self._limit_of = limit_of
        self.begun = 0  # frames so far that did not arrive in one piece
        self._head = b""  # less than a length prefix and an API key
        self._frame: bytearray | None = None  # a frame under way
        self._size = self._filled = 0
        self._whole: bytearray | None = None
        self._lent: bytearray | None = None  # a whole frame that is being handled
        self._backlog: memoryview | None = None  # received, not yet cut

    @property
    def mid_frame(self) -> bool:
        return self._frame is not None or bool(self._head)

    @property
    def frame_size(self) -> int:
        """The announced size of the frame under way, or 0."""
        return self._size if self._frame is not None else 0

    @property
    def arrived_bytes(self) -> int:
        """What has arrived of the frame under way."""
        return self._filled if self._frame is not None else 0

    @property
    def has_more(self) -> bool:
        """Whether something that was received is not cut yet."""
        return self._backlog is not None

    def buffer(self) -> memoryview:
        frame = self._frame
        if frame is None:
            held = len(self._head)
            if held:
                self._scratch.data[:held] = self._head
            return self._scratch.view[held:]
        if self._filled == len(frame):  # not in received(): the loop still holds a view of it then
            frame = self._grown(frame)
        return memoryview(frame)[self._filled :]

    def _grown(self, frame: bytearray) -> bytearray:
        more = bytes(min(GROWTH_FACTOR * len(frame), self._size) - len(frame))
        try:
            frame.extend(more)
        except BufferError:  # the last view is still in use: a copy will do
            frame = self._frame = frame + more
        return frame

    def received(self, count: int) -> None:
        if self._frame is None:
            self._backlog = self._scratch.view[: len(self._head) + count]
            self._head = b""
            return
        self._filled += count
        if self._filled == self._size:
            self._whole, self._frame = self._frame, None

    def next_frame(self) -> bytearray | None:
        """One whole frame, or None if more must be received first. To stop taking them in between, call `hold()`."""
        backlog = self._backlog
        if backlog is None:
            if self._lent is not None:
                self._scratch.give_back(self._lent)
            self._lent, self._whole = self._whole, None
            return self._lent
        available = len(backlog) - 4
        if available >= 0:
            (size,) = _length_at(backlog)
            if 0 <= size <= available and size <= self.limit_bytes:
                self._backlog = backlog[4 + size :] if available > size else None
                return bytearray(backlog[4 : 4 + size])
            if not 0 <= size <= self.limit_bytes:
                raise FrameTooLarge(_about_length(size, bytes(backlog[:8])))
            if available >= 2 or size < 2:
                self._check_limit(size, backlog)
                self._begin(size, backlog[4:])
                self._backlog = None
                return None
        self._head = bytes(backlog)
        self._backlog = None
        return None

    def _check_limit(self, size: int, backlog: memoryview) -> None:
        if self._limit_of is not None and size >= 2:
            key = int.from_bytes(backlog[4:6], "big")
            if size > self._limit_of(key):
                raise FrameTooLarge(f"a frame of {size} bytes was announced for API key {key}")

    def clear(self) -> None:
        """Nothing more is cut: what arrived is let go of, however long the framer itself is kept."""
        self._head, self._backlog = b"", None
        self._frame = self._whole = self._lent = None

    def hold(self) -> None:
        """The frames are not taken for now: keep what is in the scratch buffer, which others will use."""
        if self._backlog is not None:
            self._backlog = memoryview(bytes(self._backlog))

    def _begin(self, size: int, first: memoryview) -> None:
        frame = self._scratch.take(size, arrived_bytes=len(first))
        if len(frame) < len(first):
            frame.extend(bytes(len(first) - len(frame)))
        frame[: len(first)] = first
        self._frame, self._size, self._filled = frame, size, len(first)
        self.begun += 1
