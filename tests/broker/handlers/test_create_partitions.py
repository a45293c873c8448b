from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidemark.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


def wish(topic: str, count: int, *brokers: list[int], assigned: bool = False) -> CreatePartitionsTopic:
    assignments = [CreatePartitionsAssignment(broker_ids=ids) for ids in brokers]
    return CreatePartitionsTopic(name=topic, count=count, assignments=assignments if brokers or assigned else None)


async def grow(client: Any, version: int, *wishes: CreatePartitionsTopic, only: bool = False) -> dict[str, int]:
    request = CreatePartitionsRequest(topics=list(wishes), timeout_ms=10_000, validate_only=only)
    return {each.name: each.error_code for each in (await client.ask(request, version)).results}


async def partitions(client: Any, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return len((await client.ask(request, 12)).topics[0].partitions)


async def own_id(client: Any) -> int:
    return int((await client.ask(MetadataRequest(topics=[]), 12)).brokers[0].node_id)


async def test_a_topic_gets_more_partitions_that_can_be_written_to(shared: Any, topic: str, version: int) -> None:
    assert await grow(shared, version, wish(topic, 5)) == {topic: 0}
    assert await partitions(shared, topic) == 5
    while (told := await shared.produce(topic, b"x", partition=4)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        pass  # its log is still being opened
    assert told.error_code == ErrorCode.NONE


async def test_the_brokers_of_new_partitions_can_be_named(shared: Any, topic: str, version: int) -> None:
    me = await own_id(shared)
    assert await grow(shared, version, wish(topic, 5, [me], [me])) == {topic: 0}
    assert await partitions(shared, topic) == 5


async def test_validate_only_changes_nothing(shared: Any, topic: str, version: int) -> None:
    assert await grow(shared, version, wish(topic, 5), only=True) == {topic: 0}
    assert await grow(shared, version, wish(topic, 2), only=True) == {topic: ErrorCode.INVALID_PARTITIONS}
    assert await partitions(shared, topic) == 3


@pytest.mark.parametrize("count", [3, 2, 0, -1])
async def test_a_topic_never_gets_fewer(shared: Any, topic: str, version: int, count: int) -> None:
    assert await grow(shared, version, wish(topic, count)) == {topic: ErrorCode.INVALID_PARTITIONS}
    assert await partitions(shared, topic) == 3


async def test_an_assignment_must_fit(shared: Any, topic: str, version: int) -> None:
    me = await own_id(shared)
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    for brokers in ([[me]], [[me], [me], [me]], [[me], [99]], [[me], []], [[me], [me, me]]):
        assert await grow(shared, version, wish(topic, 5, *brokers)) == {topic: invalid}
    assert await partitions(shared, topic) == 3


async def test_a_refused_topic_does_not_hold_up_the_others(shared: Any, topic: str, version: int) -> None:
    codes = await grow(shared, version, wish("missing", 5), wish(topic, 4))
    assert codes == {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic: 0}
    assert await partitions(shared, topic) == 4


async def test_a_topic_that_is_named_twice_is_refused(shared: Any, topic: str, version: int) -> None:
    assert await grow(shared, version, wish(topic, 4), wish(topic, 5)) == {topic: ErrorCode.INVALID_REQUEST}
    assert await partitions(shared, topic) == 3
    assert await grow(shared, version) == {}


async def test_replicas_of_new_partitions_must_be_as_many_as_before(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [1, 2])
    for version in (0, 3):
        codes = await grow(cluster.client, version, wish("t", 2, [1]))
        assert codes == {"t": ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    assert await grow(cluster.client, 3, wish("t", 3)) == {"t": 0}
    assert {frozenset(each.replicas) for each in cluster.image.topics["t"].partitions} == {frozenset((1, 2))}


async def test_one_request_adds_ten_thousand_partitions_at_most(client: Any) -> None:
    for name in ("a", "b"):
        await client.create(name)
    codes = await grow(client, 3, wish("a", 6_000), wish("b", 6_000))
    assert codes == {"a": ErrorCode.POLICY_VIOLATION, "b": ErrorCode.POLICY_VIOLATION}
    assert await partitions(client, "a") == 1


async def test_what_already_exists_does_not_count(client: Any) -> None:
    await client.create("a", 3)
    assert await grow(client, 3, wish("a", 5)) == {"a": 0}
