"""Requests that are one long list, as long as a request may be: how long each keeps the event loop."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import LoopWatch, each_answered, frame_of, too_long
from tests.broker.server.worst_requests import TOPIC as WIDE
from tests.broker.server.worst_requests import Largest
from tidemark.broker.core.api_table import served_on
from tidemark.broker.core.registry import find_route
from tidemark.broker.server.server import SMALL_REQUEST_BYTES_MAX
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidemark.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tidemark.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from tidemark.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest
from tidemark.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest

MANY: Final = 500_000
TOPIC: Final = "t"
NAMES: Final = 250_000  # of what has a name and more, in 8 MiB
# API, version (the last, if there is none) and how many arrays deep the long one is. Where it is an outer one, what is
# in it is empty: there was a turn for others between two of the inner ones, and so none at all.
LONGEST: Final = (
    ("ListOffsets", None, 1),
    ("ListOffsets", None, 2),
    ("OffsetFetch", None, 1),
    ("OffsetFetch", None, 3),
    ("OffsetFetch", 7, 2),
    ("JoinGroup", None, 1),
    ("ListGroups", None, 1),
    ("DeleteRecords", None, 1),
    ("OffsetForLeaderEpoch", None, 1),
    ("AddPartitionsToTxn", None, 1),
    ("AddPartitionsToTxn", None, 3),
    ("AddPartitionsToTxn", 3, 1),
    ("AddPartitionsToTxn", 3, 2),
    ("WriteTxnMarkers", None, 1),
    ("WriteTxnMarkers", None, 2),
    ("AlterConfigs", None, 1),
    ("IncrementalAlterConfigs", None, 1),
    ("AlterReplicaLogDirs", None, 3),
    ("ElectLeaders", None, 1),
    ("AlterUserScramCredentials", None, 1),
    ("DescribeQuorum", None, 1),
    ("DescribeQuorum", None, 2),
    ("DescribeProducers", None, 1),
    ("DescribeTopicPartitions", None, 1),
    ("UpdateFeatures", 0, 1),
)
LONG_NAMES: Final = 200
ABSURD: Final = "(a?){900}(b?){900}a*.*"  # 2 ms for each name of 240 characters


def cases() -> Iterator[tuple[str, Any, int]]:
    indexes = list(range(MANY))
    topics = [ListPartitionReassignmentsTopics(name=TOPIC, partition_indexes=indexes)]
    yield "ListPartitionReassignments", ListPartitionReassignmentsRequest(topics=topics), 0
    dirs = [DescribableLogDirTopic(topic=TOPIC, partitions=indexes)]
    yield "DescribeLogDirs", DescribeLogDirsRequest(topics=dirs), 4
    names = [UserName(name=str(number)) for number in indexes]
    yield "DescribeUserScramCredentials", DescribeUserScramCredentialsRequest(users=names), 0
    yield "ListTransactions by producers", ListTransactionsRequest(producer_id_filters=indexes), 1
    topics_named = [TopicRequest(name=TOPIC) for _ in range(NAMES)]
    yield "DescribeTopicPartitions of one topic", DescribeTopicPartitionsRequest(topics=topics_named), 0
    states = [str(number) for number in indexes]
    yield "ListTransactions by states", ListTransactionsRequest(state_filters=states), 1


def longest() -> Iterator[tuple[str, Any, int]]:
    routes = {route.name: route for key in served_on("broker") if (route := find_route(key)) is not None}
    for name, version, depth in LONGEST:
        route = routes[name]
        asked = route.versions.last if version is None else version
        request = Largest(name, asked, count=NAMES, depth=depth).make(route.request)
        if len(frame_of(request, asked)) > SMALL_REQUEST_BYTES_MAX:
            request = Largest(name, asked, count=NAMES // 2, depth=depth).make(route.request)
        yield f"{name} v{asked}, {depth} down", request, asked


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


async def with_coordinators(start_node: Any, connect: Any) -> tuple[Any, Any]:
    node = await start_node(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    client = await connect(node)
    await client.create(WIDE, 100)
    for kind in (0, 1):
        await client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]), 4)
    async with asyncio.timeout(20):
        coordinators = node._coordinators
        while not all(
            any(not host.is_loading for host in each) for each in (coordinators.groups, coordinators.transactions)
        ):
            await asyncio.sleep(0.01)
    await node.warm_up()
    return node, client


async def test_no_list_as_long_as_a_request_may_be_keeps_the_loop(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node, _ = await with_coordinators(start_node, connect)
    gc.disable()  # a full collection comes once for seven million objects, and those of the client count here, too
    try:
        kept = await asyncio.to_thread(each_answered, longest(), node.address, LoopWatch(monkeypatch))
    finally:
        gc.enable()
    assert too_long(kept, capsys) == set()


async def test_no_regular_expression_keeps_the_loop(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node, client = await with_coordinators(start_node, connect)
    for number in range(LONG_NAMES):
        await client.create("a" * 240 + str(number))
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=10_000,
        topic_partitions=[],
        subscribed_topic_regex=ABSURD,
    )
    watch = LoopWatch(monkeypatch)
    kept = await asyncio.to_thread(each_answered, [("joining", joining, 1)], node.address, watch)
    assert too_long(kept, capsys) == set()
    answer = await client.ask(joining, 1)
    internal = 2  # whose names are matched by it, too
    assert (answer.error_code, len(answer.assignment.topic_partitions)) == (0, LONG_NAMES + 1 + internal)
    await client.create("a" * 240 + "x")
    kept = await asyncio.to_thread(each_answered, [("with one topic more", joining, 1)], node.address, watch)
    assert too_long(kept, capsys) == set()


async def test_no_pattern_of_transactional_ids_keeps_the_loop(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node, client = await with_coordinators(start_node, connect)
    for transactional_id in ("a" * 32_000, "ab"):
        begun = await client.ask(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 5
        )
        assert begun.error_code == 0
    absurd = ListTransactionsRequest(transactional_id_pattern=".*a.{1000}.{1000}.{1000}")
    kept = await asyncio.to_thread(each_answered, [("a pattern", absurd, 2)], node.address, LoopWatch(monkeypatch))
    assert too_long(kept, capsys) == set()
    found = await client.ask(ListTransactionsRequest(transactional_id_pattern="a?b"), 2)
    assert [each.transactional_id for each in found.transaction_states] == ["ab"]
