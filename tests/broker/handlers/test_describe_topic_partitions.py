from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)


async def describe(client: Any, *names: str, **fields: Any) -> Any:
    topics = [TopicRequest(name=name) for name in names]
    return await client.ask(DescribeTopicPartitionsRequest(topics=topics, **fields))


def indexes(answer: Any) -> dict[str, list[int]]:
    return {each.name: [one.partition_index for one in each.partitions] for each in answer.topics}


async def test_topics_are_returned_in_the_order_of_their_names(shared: Any, topic: str) -> None:
    first = f"a-{topic}"
    await shared.create(first, 2)
    answer = await describe(shared, topic, first)
    assert list(indexes(answer).items()) == [(first, [0, 1]), (topic, [0, 1, 2])]
    assert answer.next_cursor is None
    told = answer.topics[0]
    assert (told.error_code, told.topic_id, told.is_internal) == (0, await shared.topic_id(first), False)
    assert told.topic_authorized_operations > 0
    for each in told.partitions:
        assert (each.error_code, each.leader_epoch, each.offline_replicas) == (0, 0, [])
        assert each.replica_nodes == each.isr_nodes == [each.leader_id]


async def test_an_empty_list_asks_for_all(client: Any) -> None:
    await client.create("a")
    await client.create("b")
    assert indexes(await describe(client)) == {"a": [0], "b": [0]}


async def test_a_page_ends_where_its_limit_says_and_the_cursor_goes_on_from_there(client: Any) -> None:
    await client.create("a", 3)
    await client.create("b", 2)
    pages, cursor = [], None
    while True:
        answer = await describe(client, "a", "b", response_partition_limit=2, cursor=cursor)
        pages.append(indexes(answer))
        if (cursor := answer.next_cursor) is None:
            break
    assert pages == [{"a": [0, 1]}, {"a": [2], "b": [0]}, {"b": [1]}]


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_holds_at_least_one_partition(shared: Any, topic: str, limit: int) -> None:
    answer = await describe(shared, topic, response_partition_limit=limit)
    assert indexes(answer) == {topic: [0]}
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == (topic, 1)


async def test_names_that_are_missing_bad_or_repeated(shared: Any, topic: str) -> None:
    answer = await describe(shared, "missing", topic, "bad name", topic)
    codes = {each.name: each.error_code for each in answer.topics}
    assert codes == {
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        topic: 0,
    }
    assert len(answer.topics) == 3


async def test_a_cursor_at_a_topic_that_was_not_asked_for_is_refused(shared: Any, topic: str) -> None:
    answer = await describe(shared, topic, cursor=Cursor(topic_name="zzz", partition_index=0))
    assert [(each.name, each.error_code) for each in answer.topics] == [(topic, ErrorCode.INVALID_REQUEST)]


async def test_replicas_that_may_lead_and_those_that_are_gone_are_returned(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2])
    await cluster.heartbeat(2, want_fence=True)
    (told,) = (await describe(cluster.client, "t")).topics[0].partitions
    assert (told.error_code, told.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (told.replica_nodes, told.offline_replicas) == ([2], [2])
    assert told.isr_nodes + told.eligible_leader_replicas == [2]
