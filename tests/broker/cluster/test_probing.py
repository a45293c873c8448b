from __future__ import annotations

import asyncio
import socket

from tidemark.broker.cluster.probing import is_gone


async def test_an_address_where_nobody_listens_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert await is_gone("127.0.0.1", port)


async def test_a_process_that_listens_and_does_nothing_is_not_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not await is_gone("127.0.0.1", server.getsockname()[1])


async def test_a_process_that_closes_its_listener_a_little_later_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.get_running_loop().call_later(0.03, server.close)
        assert await is_gone("127.0.0.1", server.getsockname()[1])
