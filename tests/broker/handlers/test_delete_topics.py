from __future__ import annotations

from typing import Any

import pytest

from tidemark.broker.replication import role_assignment
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidemark.protocol.messages.metadata import MetadataRequest

MESSAGES_FROM = 5
IDS_FROM = 6
NO_ID = bytes(16)


async def delete(client: Any, version: int, *names: str) -> dict[str, Any]:
    states = [DeleteTopicState(name=name) for name in names]
    fields: dict[str, Any] = {"topics": states} if version >= IDS_FROM else {"topic_names": list(names)}
    answer = await client.ask(DeleteTopicsRequest(timeout_ms=10_000, **fields), version)
    return {each.name: each for each in answer.responses}


async def topics_of(client: Any) -> set[str]:
    return {each.name for each in (await client.ask(MetadataRequest(topics=None), 12)).topics}


async def test_a_topic_goes(shared: Any, topic: str, version: int) -> None:
    topic_id = await shared.topic_id(topic)
    told = (await delete(shared, version, topic))[topic]
    assert (told.error_code, told.error_message) == (0, None)
    assert told.topic_id == (topic_id if version >= IDS_FROM else NO_ID)
    assert topic not in await topics_of(shared)
    assert (await shared.produce(topic, b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_that_does_not_exist_does_not_hold_up_the_others(shared: Any, topic: str, version: int) -> None:
    told = await delete(shared, version, "missing", topic)
    assert told["missing"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (told["missing"].error_message is not None) == (version >= MESSAGES_FROM)
    assert told[topic].error_code == ErrorCode.NONE
    assert topic not in await topics_of(shared)


async def test_a_topic_that_is_named_twice_is_refused(shared: Any, topic: str, version: int) -> None:
    told = await delete(shared, version, topic, topic)
    assert told[topic].error_code == ErrorCode.INVALID_REQUEST
    assert topic in await topics_of(shared)


async def test_nothing_is_deleted_by_an_empty_list(shared: Any, topic: str, version: int) -> None:
    assert await delete(shared, version) == {}
    assert topic in await topics_of(shared)


async def test_a_topic_goes_by_its_id(shared: Any, topic: str) -> None:
    topic_id = await shared.topic_id(topic)
    states = [DeleteTopicState(topic_id=topic_id), DeleteTopicState(topic_id=b"?" * 16)]
    answer = await shared.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), IDS_FROM)
    told = {bytes(each.topic_id): (each.name, each.error_code) for each in answer.responses}
    assert told == {topic_id: (topic, 0), b"?" * 16: (None, ErrorCode.UNKNOWN_TOPIC_ID)}
    assert topic not in await topics_of(shared)


@pytest.mark.parametrize("how", ["name and id at once", "neither", "by name and again by id", "the id twice"])
async def test_what_is_not_clear_is_refused(shared: Any, topic: str, how: str) -> None:
    topic_id = await shared.topic_id(topic)
    by_name, by_id = DeleteTopicState(name=topic), DeleteTopicState(topic_id=topic_id)
    states = {
        "name and id at once": [DeleteTopicState(name=topic, topic_id=topic_id)],
        "neither": [DeleteTopicState()],
        "by name and again by id": [by_id, by_name],
        "the id twice": [by_id, by_id],
    }[how]
    answer = await shared.ask(DeleteTopicsRequest(topics=states, timeout_ms=10_000), IDS_FROM)
    assert ErrorCode.INVALID_REQUEST in {each.error_code for each in answer.responses}


async def test_deletion_can_be_switched_off(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(delete_topic_enable=False))
    await client.create("t")
    for version in (1, 6):
        assert (await delete(client, version, "t"))["t"].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert await topics_of(client) == {"t"}


async def test_a_topic_of_the_same_name_is_another_one(shared: Any, topic: str) -> None:
    before = await shared.topic_id(topic)
    await shared.produce(topic, b"x")
    await delete(shared, 6, topic)
    await shared.create(topic)
    assert await shared.topic_id(topic) != before
    assert (await shared.fetch(topic, 0)).high_watermark == 0


async def test_a_topic_made_anew_while_the_logs_of_the_old_one_still_go_is_empty(
    start_node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(role_assignment, "SLICE_SECONDS", 0.0)  # a partition at a time
    node = await start_node()
    client = await connect(node)
    for _ in range(3):
        await client.create("again", 50)
        assert (await client.produce("again", b"old", partition=49)).base_offset == 0
        assert (await delete(client, 5, "again"))["again"].error_code == 0
    await client.create("again", 50)
    assert (await client.produce("again", b"new", partition=49)).base_offset == 0
    await delete(client, 5, "again")
    await client.create("again", 50)
    await node.stop()
    client = await connect(await start_node())
    for partition in (0, 49):
        assert (await client.produce("again", b"newest", partition=partition)).base_offset == 0
