"""A node with an HTTP listener in the test's own event loop, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from tidemark.broker.node import Node

SECONDS_MAX = 20.0


class RawClient:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer that has a length."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), SECONDS_MAX)
        lines = head.decode().split("\r\n")
        lengths = [line for line in lines if line.lower().startswith("content-length:")]
        size = int(lengths[0].partition(":")[2]) if lengths else 0
        return int(lines[0].split()[1]), await asyncio.wait_for(self.reader.readexactly(size), SECONDS_MAX)

    async def ends(self) -> bytes:
        """What comes until the node hangs up."""
        try:
            return await asyncio.wait_for(self.reader.read(), SECONDS_MAX)
        except ConnectionResetError:
            return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


StartHttp = Callable[..., Awaitable[Node]]
Dial = Callable[..., Awaitable[RawClient]]


@pytest.fixture
def start_http(start_node: Any) -> StartHttp:
    async def start(**settings: Any) -> Node:
        node: Node = await start_node(**({"http_listeners": "HTTP://127.0.0.1:0"} | settings))
        return node

    return start


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    clients: list[RawClient] = []

    async def connect(node: Node, data: bytes = b"") -> RawClient:
        client = RawClient(*await asyncio.open_connection(*node.http_endpoints["HTTP"]))
        clients.append(client)
        client.writer.write(data)
        return client

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def browse() -> AsyncIterator[Callable[[Node], httpx.AsyncClient]]:
    """An HTTP client of a node."""
    clients: list[httpx.AsyncClient] = []

    def client_of(node: Node, **options: Any) -> httpx.AsyncClient:
        host, port = node.http_endpoints["HTTP"]
        client = httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=SECONDS_MAX, trust_env=False, **options)
        clients.append(client)
        return client

    yield client_of
    for client in clients:
        await client.aclose()
