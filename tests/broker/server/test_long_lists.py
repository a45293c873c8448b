"""Requests that are one long list, as long as a request may be: how long each keeps the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import LoopWatch, each_answered, too_long
from tidemark.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidemark.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tidemark.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest

MANY: Final = 500_000
TOPIC: Final = "t"


def cases() -> Iterator[tuple[str, Any, int]]:
    indexes = list(range(MANY))
    topics = [ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=indexes)]
    yield "ListPartitionReassignments", ListPartitionReassignmentsRequest(topics=topics), 0
    dirs = [DescribableLogDirTopic(topic=TOPIC, partitions=indexes)]
    yield "DescribeLogDirs", DescribeLogDirsRequest(topics=dirs), 4
    names = [UserName(name=str(number)) for number in indexes]
    yield "DescribeUserScramCredentials", DescribeUserScramCredentialsRequest(users=names), 0
    yield "ListTransactions by producers", ListTransactionsRequest(producer_id_filters=indexes), 1
    states = [str(number) for number in indexes]
    yield "ListTransactions by states", ListTransactionsRequest(state_filters=states), 1


async def test_no_long_list_keeps_the_loop(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = await start_node()
    await (await connect(node)).create(TOPIC)
    await node.warm_up()
    kept = await asyncio.to_thread(each_answered, cases(), node.address, LoopWatch(monkeypatch))
    assert too_long(kept, capsys) == set()
