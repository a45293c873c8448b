"""A transport over TCP: one connection to each peer for sending, those of the peers for receiving.

Frames are a length and a message; the first frame of a connection is the sender's id. A peer that cannot be reached, or
takes too little, loses messages: the node copes. A peer that closes its connection is reported at once, since a process
that dies does that long before any time-out.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

FRAME_BYTES_MAX: Final = 64 << 20
UNSENT_BYTES_MAX: Final = 64 << 20
RETRY_SECONDS: Final = 0.1
CONNECT_SECONDS_MAX: Final = 1.0

_LENGTH = struct.Struct(">I")
_HELLO = struct.Struct(">4sI")  # magic, the sender's id
_MAGIC: Final = b"TDR1"


class TcpTransport:
    def __init__(
        self,
        node_id: int,
        *,
        receive: Callable[[bytes], None],
        disconnected: Callable[[int], None],
    ) -> None:
        self._node_id = node_id
        self._receive = receive
        self._disconnected = disconnected
        self._peers: dict[int, tuple[str, int]] = {}
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._incoming: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Accept peers; returns the address in use, which is of interest when `port` is 0."""
        self._server = await asyncio.start_server(self._serve, host, port)
        address: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return address

    def set_peer(self, node_id: int, host: str, port: int) -> None:
        self._peers[node_id] = (host, port)

    def send(self, to: int, data: bytes) -> None:
        writer = self._writers.get(to)
        if writer is None or writer.is_closing():
            self._connect(to)
        elif writer.transport.get_write_buffer_size() < UNSENT_BYTES_MAX:
            writer.write(_LENGTH.pack(len(data)) + data)

    async def close(self) -> None:
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for writer in [*self._writers.values(), *self._incoming]:
            writer.transport.abort()
        self._writers.clear()

    def _connect(self, to: int) -> None:
        if to in self._peers and to not in self._connecting:
            task = asyncio.get_running_loop().create_task(self._open(to))
            self._connecting[to] = task

    async def _open(self, to: int) -> None:
        """One attempt; the pause after a failure limits how often a dead peer is tried."""
        host, port = self._peers[to]
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                _, writer = await asyncio.open_connection(host, port)
            writer.write(_LENGTH.pack(_HELLO.size) + _HELLO.pack(_MAGIC, self._node_id))
            self._writers[to] = writer
        except (OSError, TimeoutError):
            await asyncio.sleep(RETRY_SECONDS)
        finally:
            del self._connecting[to]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: int | None = None
        self._incoming.add(writer)
        try:
            peer = _read_hello(await _read_frame(reader))
            while True:
                self._receive(await _read_frame(reader))
        except (asyncio.IncompleteReadError, OSError):
            pass
        except ValueError as error:
            log.warning("closed a connection: %s", error)
        finally:
            self._incoming.discard(writer)
            writer.transport.abort()
            if peer is not None:
                self._disconnected(peer)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise ValueError(f"a frame of {length} bytes exceeds {FRAME_BYTES_MAX}")
    return await reader.readexactly(length)


def _read_hello(data: bytes) -> int:
    if len(data) != _HELLO.size or not data.startswith(_MAGIC):
        raise ValueError("the first frame does not say who it is from")
    node_id: int = _HELLO.unpack(data)[1]
    return node_id
