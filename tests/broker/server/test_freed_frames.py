"""What arrived on a connection goes with it, not when Python's collector comes by: it may be a hundred megabytes."""

from __future__ import annotations

import asyncio
import struct

import pytest

import tidemark
from tidemark.broker.server import connection
from tidemark.protocol.frames import Framer, Scratch

SIZE = 900_000


class NotedFrame(bytearray):
    """One that tells when it is freed."""

    freed = 0

    def __del__(self) -> None:
        NotedFrame.freed += 1


@pytest.mark.parametrize("sent", [SIZE, SIZE // 2], ids=["unreadable", "half of it"])
async def test_a_frame_is_freed_with_its_connection(monkeypatch: pytest.MonkeyPatch, sent: int) -> None:
    lost, take, connection_lost = asyncio.Event(), Scratch.take, connection.Connection.connection_lost
    loop = asyncio.get_running_loop()

    def take_noted(self: Scratch, size: int, *, arrived_bytes: int = 0) -> bytearray:
        return NotedFrame(take(self, size, arrived_bytes=arrived_bytes))

    kept: list[connection.Connection] = []

    def lost_noted(self: connection.Connection, error: Exception | None) -> None:
        connection_lost(self, error)
        kept.append(self)  # as the cycle does
        loop.call_soon_threadsafe(lost.set)

    monkeypatch.setattr(Scratch, "take", take_noted)
    monkeypatch.setattr(connection.Connection, "connection_lost", lost_noted)
    NotedFrame.freed = 0
    with tidemark.embedded() as broker:
        host, port = broker.bootstrap.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        frame = struct.pack(">ihhi", SIZE, 0, 9, 1).ljust(4 + SIZE, b"\xff")
        writer.write(frame[: 4 + sent])
        await writer.drain()
        if sent < SIZE:
            writer.close()
        await asyncio.wait_for(lost.wait(), 20)
        writer.close()
        assert NotedFrame.freed == 1
        assert not kept[0]._framer.mid_frame


def test_a_framer_that_is_cleared_holds_nothing() -> None:
    framer = Framer(Scratch(64), limit_bytes=1000)
    framer.buffer()[:6] = struct.pack(">ih", 500, 3)
    framer.received(6)
    assert framer.next_frame() is None
    assert framer.mid_frame
    framer.clear()
    assert (framer.mid_frame, framer.has_more, framer.arrived_bytes, framer.next_frame()) == (False, False, 0, None)
