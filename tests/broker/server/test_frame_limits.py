"""Requests that are announced and do not come: they cost their sender a connection, and nobody else anything."""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.server.server import SMALL_REQUEST_BYTES_MAX, Server
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

PRODUCE, METADATA = 0, 3


def announced(size: int, key: int = PRODUCE) -> bytes:
    return struct.pack(">ihhih", size, key, 3, 1, -1)


async def test_lengths_without_bytes_keep_nobody_waiting(start_node: Any, connect: Any) -> None:
    node = await start_node(queued_max_request_bytes=2_000_000)
    liars = [await connect(node) for _ in range(3)]
    for liar in liars:
        liar.writer.write(announced(100_000_000))
        await liar.writer.drain()
    honest = await connect(node)
    await honest.create("t")
    answer = await asyncio.wait_for(honest.produce("t", bytes(900_000)), 5)
    assert answer.error_code == 0
    assert node._server.memory.used_bytes == 0


async def test_halves_of_requests_that_fill_the_memory_give_way(start_node: Any, connect: Any) -> None:
    node = await start_node(queued_max_request_bytes=1_000_000, connections_max_idle_ms=2_000)
    liars = [await connect(node) for _ in range(3)]
    for liar in liars:
        liar.writer.write(announced(100_000_000) + bytes(900_000))
    honest = await connect(node)
    await honest.create("t")
    assert (await asyncio.wait_for(honest.produce("t", bytes(900_000)), 8)).error_code == 0


async def test_half_a_request_is_given_up_after_a_while(start_node: Any, connect: Any) -> None:
    node = await start_node(connections_max_idle_ms=1_000)
    node._server.frame_seconds_max = 0.3
    half, prefix, dripping, patient = [await connect(node) for _ in range(4)]
    half.writer.write(announced(1000))
    prefix.writer.write(b"\0\0")
    await patient.create("t")
    began = asyncio.get_running_loop().time()
    closing = asyncio.ensure_future(dripping.closed_by_peer())
    dripping.writer.write(announced(1000))
    async with asyncio.timeout(20):
        while not closing.done():
            dripping.writer.write(b"x")
            await asyncio.sleep(0.05)
    assert await half.closed_by_peer()
    assert await prefix.closed_by_peer()
    assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize("together", [True, False])
async def test_only_produce_requests_may_be_large(start_node: Any, connect: Any, together: bool) -> None:
    node = await start_node()
    metadata, producer = await connect(node), await connect(node)
    start = announced(SMALL_REQUEST_BYTES_MAX + 1, METADATA)
    if not together:
        metadata.writer.write(start[:5])
        await metadata.writer.drain()
        await asyncio.sleep(0)
    metadata.writer.write(start if together else start[5:])
    assert await metadata.closed_by_peer()
    producer.writer.write(announced(SMALL_REQUEST_BYTES_MAX + 1, PRODUCE))
    await producer.writer.drain()
    other = await connect(node)
    named = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert (await other.call(named, ApiVersionsResponse, 3)).error_code == 0
    assert not producer.reader.at_eof()


async def test_controllers_have_memory_of_their_own() -> None:
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "log.dirs": "unused"}
    server = Server(load_config(overrides=listeners | {"controller.listener.names": "CONTROLLER"}), print)
    assert server.memory_of("PLAINTEXT") is server.memory
    assert server.memory_of("CONTROLLER") is server.controller_memory is not server.memory
    assert server.limit_of("PLAINTEXT") is not None
    assert server.limit_of("CONTROLLER") is None


async def test_requests_that_came_together_leave_others_their_turn(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred slow requests in one packet: another connection's request is answered among them, not after them."""
    node = await start_node()
    greedy, other = await connect(node), await connect(node)
    named = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    await other.call(named, ApiVersionsResponse, 3)
    dispatcher = node._server._handle
    (bound,) = [each for each in dispatcher._bound.values() if each.name == "ApiVersions"]
    handle, handled = bound.handle, []

    def slow(request: Any, call: Any) -> Any:
        time.sleep(0.01)
        handled.append(call.connection.peer)
        return handle(request, call)

    monkeypatch.setattr(bound, "handle", slow)
    for _ in range(100):
        greedy.send(named, 3)
    await greedy.writer.drain()
    async with asyncio.timeout(20):
        while not handled:
            await asyncio.sleep(0)
    await other.call(named, ApiVersionsResponse, 3)
    assert handled.index(other_peer(other)) < 20
    for _ in range(100):
        await asyncio.wait_for(greedy.receive(ApiVersionsResponse, 3), 10)


def other_peer(client: Any) -> str:
    host, port = client.writer.get_extra_info("sockname")[:2]
    return f"{host}:{port}"
