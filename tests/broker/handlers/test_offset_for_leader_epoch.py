from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def ask(
    client: Any, version: int, topic: str, epoch: int, *, index: int = 0, current: int = -1
) -> tuple[int, ...]:
    """The code, and the epoch with its end."""
    asked = OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=current)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[asked])]
    answer = await client.ask(OffsetForLeaderEpochRequest(topics=topics), version)
    (told,) = answer.topics[0].partitions
    assert told.partition == index
    return told.error_code, told.leader_epoch, told.end_offset


async def test_the_present_epoch_ends_where_the_log_ends(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"x", b"y")
    assert await ask(shared, version, topic, 0) == (0, 0, 2)
    assert await ask(shared, version, topic, 0, current=0) == (0, 0, 2)


async def test_an_epoch_that_is_still_to_come_has_no_end(shared: Any, topic: str, version: int) -> None:
    await shared.produce(topic, b"x")
    assert await ask(shared, version, topic, 1) == (0, -1, -1)
    assert await ask(shared, version, topic, -1) == (0, -1, -1)


async def test_an_earlier_epoch_ends_where_the_next_begins(client: Any, node: Any) -> None:
    await client.create("t")
    await client.produce("t", b"x")
    node._replicas.table.leader_of("t", 0).log.start_epoch(3)
    for version in (2, 3, 4):
        assert await ask(client, version, "t", 0) == (0, 0, 1)
        assert await ask(client, version, "t", 2) == (0, 0, 1)
        assert await ask(client, version, "t", 3) == (0, 3, 1)


@pytest.mark.parametrize("current", [1, 7])
async def test_a_reader_that_knows_a_newer_leader_is_sent_to_another_broker(
    shared: Any, topic: str, version: int, current: int
) -> None:
    assert await ask(shared, version, topic, 0, current=current) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)


async def test_what_does_not_exist_is_said(shared: Any, topic: str, version: int) -> None:
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
    assert await ask(shared, version, topic, 0, index=99) == unknown
    assert await ask(shared, version, "missing", 0) == unknown
    assert (await shared.ask(OffsetForLeaderEpochRequest(), version)).topics == []


async def test_a_partition_that_another_leads_and_a_reader_of_an_earlier_leader(cluster: Any) -> None:
    await cluster.join(2)
    await cluster.create("t", [2, 1])
    for version in (2, 3, 4):
        assert await ask(cluster.client, version, "t", 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1)
    await cluster.heartbeat(2, want_fence=True)
    while (await ask(cluster.client, 4, "t", 0))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        pass
    for version in (2, 3, 4):
        assert await ask(cluster.client, version, "t", 0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
