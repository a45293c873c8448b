"""Requests that take longer than a slice: others are served in between, and their own connection keeps its order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidemark.broker.core import sliced_work
from tidemark.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MANY = 3000


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_work, "SLICE_SECONDS", 0.0)


def large(prefix: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"{prefix}.{index}") for index in range(MANY)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def test_answers_keep_the_order_of_the_requests(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    sent = [client.send(large("a"), 12), client.send(ApiVersionsRequest(), 0), client.send(large("b"), 12)]
    for correlation_id, response, version in zip(
        sent, (MetadataResponse, ApiVersionsResponse, MetadataResponse), (12, 0, 12), strict=True
    ):
        answer = await client.receive(response, version)
        assert client.answered == correlation_id
        if response is MetadataResponse:
            assert len(answer.topics) == MANY


async def test_another_client_is_served_in_between(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    await client.call(MetadataRequest(), MetadataResponse, 12)
    client.send(large("a"), 12)
    answer = asyncio.create_task(client.receive(MetadataResponse, 12))
    for _ in range(10):
        await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
    assert not answer.done()
    assert len((await answer).topics) == MANY


async def test_a_client_that_leaves_in_between_is_not_worked_for_any_more(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    client.send(large("a"), 12)
    await client.writer.drain()
    await client.close()
    work = node._server._handle._work
    async with asyncio.timeout(10):
        await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
        while work.is_busy or node._server.connection_count > 1:
            await asyncio.sleep(0)


async def test_a_large_request_that_cannot_be_read_ends_its_own_connection_only(start_node: Any, connect: Any) -> None:
    node = await start_node()
    client, other = await connect(node), await connect(node)
    body = b"\0\3\0\1\0\0\0\7\0\4test" + MANY.to_bytes(4) + b"\0\2ab" * (MANY - 1) + b"\0\2\xff\xff" + bytes(40_000)
    client.writer.write(len(body).to_bytes(4) + body)
    assert await client.closed_by_peer()
    await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)


async def test_a_small_request_with_a_large_answer_is_answered_whole(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    await client.create("t")
    resource = DescribeConfigsResource(resource_type=2, resource_name="t")
    answer = await client.call(DescribeConfigsRequest(resources=[resource] * 100), DescribeConfigsResponse, 4)
    assert len(answer.results) == 100
    assert all(len(result.configs) == len(answer.results[0].configs) > 20 for result in answer.results)
