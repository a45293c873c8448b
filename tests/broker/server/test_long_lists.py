"""Requests that are one long list, as long as a request may be: how long each keeps the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import KEPT_SECONDS_MAX, LoopWatch, answered, frame_of
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


def drive(address: tuple[str, int], watch: LoopWatch) -> dict[str, tuple[float, str]]:
    kept: dict[str, tuple[float, str]] = {}
    for name, request, version in cases():
        frame = frame_of(request, version)
        del request
        watch.take()
        assert answered(address, frame, 1), name
        kept[name] = watch.take()
    return kept


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
    kept = await asyncio.to_thread(drive, node.address, LoopWatch(monkeypatch))
    with capsys.disabled():
        for name, (seconds, what) in kept.items():
            print(f"{seconds * 1000:8.1f} ms  {name}: {what}")
    assert {name for name, (seconds, _) in kept.items() if seconds > KEPT_SECONDS_MAX} == set()
