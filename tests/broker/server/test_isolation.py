"""One client's trouble is its own: what fails for one is answered or closed there, and nobody else notices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tidemark.protocol.messages.fetch import FetchResponse
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataResponse

IN_FLIGHT_MAX = 256


async def until_watched(node: Any, topic: str) -> None:
    watchers = node._replicas.table.leader_of(topic, 0).watchers
    async with asyncio.timeout(10):
        while not watchers:
            await asyncio.sleep(0)


def heartbeat(assignor: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1000,
        server_assignor=assignor,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


async def until_coordinated(client: Any) -> None:
    await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse, 4)
    async with asyncio.timeout(10):
        while True:
            answer = await client.call(heartbeat("unknown"), ConsumerGroupHeartbeatResponse, 1)
            if answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR:
                return


async def test_a_readers_error_text_that_fits_no_answer_spares_the_producer_that_woke_it(
    start_node: Any, connect: Any, requests: Any
) -> None:
    node = await start_node()
    reader, sleeper, producer = await connect(node), await connect(node), await connect(node)
    await producer.create("t")
    await until_coordinated(producer)
    for _ in range(IN_FLIGHT_MAX):
        reader.send(requests.fetch("t", 0, wait_ms=60_000), 12)
    reader.send(heartbeat("x" * 32_760), 1)
    sleeper.send(requests.fetch("t", 0, wait_ms=60_000), 12)
    await until_watched(node, "t")
    assert (await producer.produce("t", b"wakes both")).error_code == 0
    assert (await asyncio.wait_for(sleeper.receive(FetchResponse, 12), 10)).error_code == 0
    for _ in range(IN_FLIGHT_MAX):
        await asyncio.wait_for(reader.receive(FetchResponse, 12), 10)
    answer = await asyncio.wait_for(reader.receive(ConsumerGroupHeartbeatResponse, 1), 10)
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert len(answer.error_message) <= 1000


async def test_a_fetch_that_cannot_be_encoded_closes_its_own_connection_only(
    start_node: Any, connect: Any, requests: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node()
    reader, sleeper, producer = await connect(node), await connect(node), await connect(node)
    await producer.create("t")
    await until_encoded_badly(node, reader, requests, monkeypatch)
    sleeper.send(requests.fetch("t", 0, wait_ms=60_000, min_bytes=2), 13)
    await until_watched(node, "t")
    assert (await producer.produce("t", b"wakes both")).error_code == 0
    answered = await asyncio.wait_for(reader.receive(FetchResponse, 12), 10)
    assert answered.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "no int16" in caplog.text


async def until_encoded_badly(node: Any, reader: Any, requests: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader waits, and the answer that it will get holds what no answer can carry."""
    reader.send(requests.fetch("t", 0, wait_ms=60_000), 12)
    await until_watched(node, "t")
    partition = node._replicas.table.leader_of("t", 0)
    (watcher,) = partition.watchers
    monkeypatch.setattr(type(watcher._reading), "response", lambda _self: FetchResponse(error_code=1 << 20))


async def test_an_async_handler_whose_answer_cannot_be_encoded_is_answered(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await start_node()
    client = await connect(node)
    dispatcher = node._server._handle
    await client.call(MetadataRequest(topics=[]), MetadataResponse, 13)
    (bound,) = [each for each in dispatcher._bound.values() if each.name == "Metadata"]

    async def slow(_request: Any, _call: Any) -> Any:
        await asyncio.sleep(0)
        return MetadataResponse(controller_id=1 << 40)

    monkeypatch.setattr(bound, "handle", slow)
    answer = await client.call(MetadataRequest(topics=[]), MetadataResponse, 13)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "no int32" in caplog.text


async def test_an_answer_that_cannot_be_encoded_and_has_no_place_for_an_error_closes_the_connection(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    dispatcher = node._server._handle
    await client.call(MetadataRequest(topics=[]), MetadataResponse, 4)
    (bound,) = [each for each in dispatcher._bound.values() if each.name == "Metadata"]
    monkeypatch.setattr(bound, "handle", lambda _request, _call: MetadataResponse(controller_id=1 << 40))
    client.send(MetadataRequest(topics=[]), 4)
    assert await client.closed_by_peer()
    named = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    assert (await other.call(named, ApiVersionsResponse, 3)).error_code == 0
