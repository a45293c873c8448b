"""Requests about many partitions: several decisions, one answer."""

from __future__ import annotations

import pytest

from tidemark.broker.core.deferred import Deferred, MaybeDeferred
from tidemark.broker.core.sliced_work import at_once
from tidemark.broker.groups import many_partitions
from tidemark.broker.groups.many_partitions import in_parts, is_large
from tidemark.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_partitions, "PARTITIONS_AT_ONCE_MAX", 4)


def request(**topics: int) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in range(count)]
            )
            for name, count in topics.items()
        ],
    )


def answer(part: OffsetDeleteRequest, code: int = 0) -> OffsetDeleteResponse:
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=each.partition_index) for each in topic.partitions
            ],
        )
        for topic in part.topics
    ]
    return OffsetDeleteResponse(error_code=code, topics=topics)


def told(response: OffsetDeleteResponse) -> dict[str, list[int]]:
    return {topic.name: [each.partition_index for each in topic.partitions] for topic in response.topics}


@pytest.mark.parametrize("topics", [{"a": 5}, {"a": 9, "b": 1}, {"a": 0, "b": 8, "c": 3}, {"a": 4, "b": 4}])
def test_every_partition_is_answered_once_in_its_order(topics: dict[str, int]) -> None:
    asked = request(**topics)
    parts: list[OffsetDeleteRequest] = []

    def one(part: OffsetDeleteRequest) -> OffsetDeleteResponse:
        parts.append(part)
        return answer(part)

    response = at_once(in_parts(asked, one))
    assert isinstance(response, OffsetDeleteResponse)
    assert told(response) == {name: list(range(count)) for name, count in topics.items()}
    assert len(response.topics) == len(topics)
    assert is_large(asked)
    assert all(sum(len(topic.partitions) for topic in part.topics) <= 4 and part.group_id == "g" for part in parts)


def test_the_answer_waits_for_the_last_part_and_has_the_first_error() -> None:
    waiting: list[tuple[Deferred[OffsetDeleteResponse], OffsetDeleteRequest]] = []

    def one(part: OffsetDeleteRequest) -> MaybeDeferred[OffsetDeleteResponse]:
        waiting.append((Deferred(), part))
        return waiting[-1][0]

    found: list[OffsetDeleteResponse] = []
    deferred = at_once(in_parts(request(a=10), one))
    assert isinstance(deferred, Deferred)
    deferred.then(found.append)
    for code, (part_deferred, part) in enumerate(reversed(waiting)):
        assert not found
        part_deferred.resolve(answer(part, code))
    assert told(found[0]) == {"a": list(range(10))}
    assert found[0].error_code == len(waiting) - 1
