"""Connections: order, limits, idleness, memory, and the end."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from tidemark import portable
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.fetch import FetchResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tidemark.protocol.messages.produce import ProduceResponse
from tidemark.protocol.records import iter_batches, iter_records


def values_of(partition: Any) -> list[bytes]:
    return [
        bytes(record.value or b"") for _, batch in iter_batches(partition.records) for record in iter_records(batch)
    ]


async def test_answers_leave_in_the_order_of_the_requests(start_node: Any, connect: Any, requests: Any) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    await client.create("t")
    sent = [client.send(requests.fetch("t", 0, wait_ms=30_000), 12)]
    sent += [
        client.send(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3) for _ in range(3)
    ]
    await client.writer.drain()
    await other.produce("t", b"wakes the fetch")
    fetched = await client.receive(FetchResponse, 12)
    answered = [client.answered]
    for _ in range(3):
        await client.receive(ApiVersionsResponse, 3)
        answered.append(client.answered)
    assert answered == sent
    assert values_of(fetched.responses[0].partitions[0]) == [b"wakes the fetch"]


async def test_a_crowd_that_sends_nonsense_does_not_flood_the_log(
    start_node: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node()
    for _ in range(100):
        client = await connect(node)
        client.writer.write(struct.pack(">ihhi", 8, 999, 0, 1))
        assert await client.closed_by_peer()
    lines = [line for line in caplog.messages if line.startswith("closing the connection")]
    assert 0 < len(lines) <= 20


async def test_hundreds_of_requests_in_one_write_are_all_answered(start_node: Any, connect: Any, requests: Any) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t")
    for number in range(500):
        client.send(requests.produce("t", b"%d" % number), 12)
    offsets = [
        (await client.receive(ProduceResponse, 12)).responses[0].partition_responses[0].base_offset for _ in range(500)
    ]
    assert offsets == list(range(500))


async def test_a_connection_over_the_limit_is_refused_and_a_freed_place_is_given_again(
    start_node: Any, connect: Any
) -> None:
    node = await start_node(max_connections_per_ip=2)
    first, second, third = await connect(node), await connect(node), await connect(node)
    assert await third.closed_by_peer()
    await second.close()
    await first.create("still-served")
    fourth = await connect(node)
    await fourth.create("served")


async def test_clients_cannot_use_up_the_descriptors_that_logs_need(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.broker.server.server.DESCRIPTORS_SHARE", 3.5 / portable.descriptor_limit())
    node = await start_node()
    clients = [await connect(node) for _ in range(3)]
    assert await (await connect(node)).closed_by_peer()
    await clients[0].create("still-served")


async def test_an_override_speaks_for_one_address(start_node: Any, connect: Any) -> None:
    node = await start_node(max_connections_per_ip=0, max_connections_per_ip_overrides="127.0.0.1:1")
    client, refused = await connect(node), await connect(node)
    await client.create("t")
    assert await refused.closed_by_peer()


async def test_idle_connections_are_closed_but_not_those_that_wait_for_us(
    start_node: Any, connect: Any, requests: Any
) -> None:
    node = await start_node(connections_max_idle_ms=300)
    waiting, idle, half = await connect(node), await connect(node), await connect(node)
    await waiting.create("t")
    waiting.send(requests.fetch("t", 0, wait_ms=1_500), 12)
    half.writer.write(struct.pack(">i", 1000) + b"half a frame")
    assert await idle.closed_by_peer()
    assert await half.closed_by_peer()
    answer = await asyncio.wait_for(waiting.receive(FetchResponse, 12), 10)
    assert answer.error_code == 0


async def test_large_requests_take_turns_when_memory_is_short(start_node: Any, connect: Any) -> None:
    node = await start_node(queued_max_request_bytes=2_000_000, message_max_bytes=10_000_000)
    clients = [await connect(node) for _ in range(6)]
    await clients[0].create("t")
    results = await asyncio.gather(*(client.produce("t", bytes(1_500_000)) for client in clients))
    assert sorted(result.base_offset for result in results) == list(range(6))
    assert node._server.memory.used_bytes == 0


async def test_a_client_that_hangs_up_in_a_large_request_gives_its_memory_back(start_node: Any, connect: Any) -> None:
    node = await start_node(queued_max_request_bytes=2_000_000)
    rude, patient = await connect(node), await connect(node)
    await patient.create("t")
    rude.writer.write(struct.pack(">i", 1_900_000) + bytes(500_000))
    await rude.writer.drain()
    waiting = asyncio.create_task(patient.produce("t", bytes(900_000)))
    await rude.close()
    assert (await asyncio.wait_for(waiting, 10)).base_offset == 0
    assert node._server.memory.used_bytes == 0


async def test_a_reader_that_does_not_read_holds_up_nobody_and_no_memory(
    start_node: Any, connect: Any, requests: Any
) -> None:
    node = await start_node()
    slow, other = await connect(node), await connect(node)
    await slow.create("t")
    for _ in range(20):
        await slow.produce("t", bytes(900_000))
    for _ in range(200):
        slow.send(requests.fetch("t", 0), 12)
    for _ in range(50):
        assert (await other.produce("t", b"meanwhile")).error_code == 0
    for _ in range(200):
        fetched = await asyncio.wait_for(slow.receive(FetchResponse, 12), 10)
        assert fetched.responses[0].partitions[0].error_code == 0


async def test_a_long_poll_ends_with_its_connection(start_node: Any, connect: Any, requests: Any) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    await client.create("t")
    client.send(requests.fetch("t", 0, wait_ms=2**31 - 1), 12)
    await client.writer.drain()
    watchers = node._replicas.table.leader_of("t", 0).watchers
    async with asyncio.timeout(10):
        while not watchers:
            await asyncio.sleep(0)
        await client.close()
        while watchers:
            await asyncio.sleep(0)
    assert (await other.produce("t", b"nobody listens")).base_offset == 0


async def test_a_waiting_fetch_that_fails_is_answered_and_spares_the_producer(
    start_node: Any, connect: Any, requests: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    await client.create("t")
    client.send(requests.fetch("t", 0, wait_ms=60_000), 12)
    await client.writer.drain()
    partition = node._replicas.table.leader_of("t", 0)
    async with asyncio.timeout(10):
        while not partition.watchers:
            await asyncio.sleep(0)

    def broken(*_arguments: object, **_named: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(type(partition), "read", broken)
    assert (await other.produce("t", b"fine")).error_code == 0
    assert (await asyncio.wait_for(client.receive(FetchResponse, 12), 10)).error_code == -1
    assert "a bug" in caplog.text
    assert not partition.watchers


async def test_stopping_answers_what_was_accepted(start_node: Any, connect: Any, requests: Any, tmp_path: Path) -> None:
    node = await start_node()
    client, waiting = await connect(node), await connect(node)
    await client.create("t", flush_messages="1")
    waiting.send(requests.fetch("t", 0, wait_ms=60_000), 12)
    for number in range(50):
        client.send(requests.produce("t", b"%d" % number), 12)
    await client.writer.drain()
    await client.receive(ProduceResponse, 12)
    await node.stop()
    assert (await asyncio.wait_for(waiting.receive(FetchResponse, 12), 10)).error_code == 0
    acknowledged = 1
    while True:
        try:
            answer = await asyncio.wait_for(client.receive(ProduceResponse, 12), 10)
        except asyncio.IncompleteReadError:
            break
        assert answer.responses[0].partition_responses[0].error_code == 0
        acknowledged += 1
    again = await start_node()
    partition = await (await connect(again)).fetch("t", 0)
    assert len(values_of(partition)) >= acknowledged


@pytest.mark.parametrize("tail", [b"", b"\x00\x00\x00"])
async def test_surplus_bytes_of_a_request_are_let_pass(start_node: Any, connect: Any, tail: bytes) -> None:
    client = await connect(await start_node())
    body = struct.pack(">hhih", 3, 1, 9, -1) + struct.pack(">i", -1) + tail
    client.writer.write(struct.pack(">i", len(body)) + body)
    answer = await asyncio.wait_for(client.receive(MetadataResponse, 1), 10)
    assert (client.answered, answer.topics) == (9, [])


async def test_every_kind_of_client_id_is_understood(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    for client_id in (None, b"", b"short", "größer".encode(), b"x" * 300, None):
        header = struct.pack(">hhih", 3, 1, 5, -1 if client_id is None else len(client_id)) + (client_id or b"")
        body = header + struct.pack(">i", 0)
        client.writer.write(struct.pack(">i", len(body)) + body)
        assert (await asyncio.wait_for(client.receive(MetadataResponse, 1), 10)).topics == []


async def test_a_request_that_fails_inside_is_answered_and_logged(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node()
    client = await connect(node)

    def broken(_listener: str) -> None:
        raise RuntimeError("a bug")

    cluster = node._services()["cluster"]()
    monkeypatch.setattr(type(cluster), "brokers", lambda _self, _listener: broken(_listener))
    answer = await client.call(MetadataRequest(topics=None), MetadataResponse, 13)
    assert answer.error_code == -1
    assert "a bug" in caplog.text


async def test_a_client_that_does_not_read_delays_a_stop_by_two_seconds_at_most(
    start_node: Any, connect: Any, requests: Any
) -> None:
    node = await start_node()
    deaf, other = await connect(node), await connect(node)
    await other.create("t")
    for _ in range(20):
        await other.produce("t", bytes(900_000))
    for _ in range(100):
        deaf.send(requests.fetch("t", 0), 12)
    await deaf.writer.drain()
    await other.produce("t", b"the fetches have been taken up")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await node.stop()
    assert loop.time() - began < 5


async def test_connections_whose_other_end_is_gone_are_noticed(start_node: Any, connect: Any) -> None:
    node = await start_node()
    await (await connect(node)).create("t")
    (connection,) = node._server._connections
    accepted = connection.transport.get_extra_info("socket")
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
