"""CreatePartitions: how many partitions one request may add."""

from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse


async def test_one_request_adds_ten_thousand_partitions_at_most(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    for name in ("a", "b"):
        await client.create(name)
    wanted = [CreatePartitionsTopic(name=name, count=6_000, assignments=None) for name in ("a", "b")]
    answer = await client.call(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), CreatePartitionsResponse, 3)
    assert [result.error_code for result in answer.results] == [ErrorCode.POLICY_VIOLATION] * 2
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="a")])
    assert len((await client.call(asked, MetadataResponse, 12)).topics[0].partitions) == 1


async def test_what_already_exists_does_not_count(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    await client.create("a", 3)
    wanted = [CreatePartitionsTopic(name="a", count=5, assignments=None)]
    answer = await client.call(CreatePartitionsRequest(topics=wanted, timeout_ms=1000), CreatePartitionsResponse, 3)
    assert answer.results[0].error_code == ErrorCode.NONE
