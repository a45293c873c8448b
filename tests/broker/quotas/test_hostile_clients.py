"""Clients that mean no good: what quotas can be made to hold open, or to wait for."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from tests.broker.quotas.test_gate import set_quotas
from tidemark.protocol.messages.produce import ProduceResponse


async def throttled(node: Any, connect: Any, requests: Any) -> Any:
    """A client that is not listened to for an hour."""
    client = await connect(node)
    await client.create("t")
    await set_quotas(client, {"client_id": "test"}, producer_byte_rate=10)
    answer = await client.call(requests.produce("t", bytes(36_000)), ProduceResponse, 12)
    assert answer.throttle_time_ms > 3_500_000
    return client


async def test_a_client_that_hangs_up_while_it_is_muted_is_forgotten(
    start_node: Any, connect: Any, requests: Any
) -> None:
    node = await start_node(connections_max_idle_ms=2000)  # looked at every 200 ms
    client = await throttled(node, connect, requests)
    other = await connect(node)
    assert node._server.connection_count == 2
    client.writer.close()
    async with asyncio.timeout(1.5):
        while node._server.connection_count > 1:
            await asyncio.sleep(0.05)
    assert not other.writer.is_closing()


async def test_a_node_that_stops_does_not_wait_for_a_muted_client(start_node: Any, connect: Any, requests: Any) -> None:
    node = await start_node()
    client = await throttled(node, connect, requests)
    began = time.monotonic()
    await node.stop()
    assert time.monotonic() - began < 1.5
    assert await client.closed_by_peer()


async def test_what_a_muted_client_sent_before_it_hung_up_is_handled(
    start_node: Any, connect: Any, requests: Any
) -> None:
    node = await start_node(connections_max_idle_ms=2000)
    client = await connect(node)
    await client.create("t")
    await set_quotas(client, {"client_id": "test"}, producer_byte_rate=10_000)
    for _ in range(3):
        client.send(requests.produce("t", bytes(7_000), acks=0), 12)
    await client.writer.drain()
    client.writer.close()
    log = node._replicas.table.leader_of("t", 0).log
    async with asyncio.timeout(5):
        while log.end_offset < 3:
            await asyncio.sleep(0.05)
