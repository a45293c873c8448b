from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


async def create(client: Any, *topics: CreatableTopic, version: int = 7, only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=only)
    answer = await client.call(request, CreateTopicsResponse, version)
    return {each.name: each for each in answer.topics}


@pytest.mark.parametrize("version", [2, 4, 5, 7])
async def test_a_topic_is_created_and_described_as_far_as_the_version_can(client: Any, version: int) -> None:
    created = (await create(client, topic("t", 3), version=version))["t"]
    assert created.error_code == ErrorCode.NONE
    if version >= 5:
        assert (created.num_partitions, created.replication_factor) == (3, 1)
        assert {each.name for each in created.configs} >= {"retention.ms", "cleanup.policy"}
    assert (created.topic_id != bytes(16)) == (version >= 7)


async def test_validate_only_creates_nothing(client: Any) -> None:
    for _ in range(2):
        assert (await create(client, topic("t"), only=True))["t"].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", configs=[CreatableTopicConfig(name="no.such", value="1")]), ErrorCode.INVALID_CONFIG),
        (topic("t", configs=[CreatableTopicConfig(name="retention.ms", value=None)]), ErrorCode.INVALID_CONFIG),
        (
            topic("t", -1, -1, assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[99])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
async def test_what_is_wrong_is_refused_and_the_others_are_created(
    client: Any, wanted: CreatableTopic, code: ErrorCode
) -> None:
    answers = await create(client, wanted, topic("good"))
    assert answers[wanted.name].error_code == code
    assert answers["good"].error_code == ErrorCode.NONE


async def test_names_that_would_share_a_metric_name_are_refused_within_a_request_and_later(client: Any) -> None:
    answers = await create(client, topic("a.b"), topic("a_b"))
    assert (answers["a.b"].error_code, answers["a_b"].error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert (await create(client, topic("a_b")))["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert (await create(client, topic("a.b")))["a.b"].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_topic_that_is_named_twice_is_refused(client: Any) -> None:
    assert (await create(client, topic("t"), topic("t")))["t"].error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("only", [True, False])
async def test_too_many_partitions_are_refused_for_the_whole_request(client: Any, only: bool) -> None:
    answers = await create(client, topic("wide", 100_000), topic("small"), only=only)
    assert {each.error_code for each in answers.values()} == {ErrorCode.POLICY_VIOLATION}
