"""Short requests whose answers are one long list: how long each keeps the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import LoopWatch, each_answered, too_long
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.core.sliced_work import at_once
from tidemark.broker.groups.consumer.records import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
)
from tidemark.broker.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidemark.broker.handlers.describe_groups import describe_groups
from tidemark.broker.metadata.image import GROUP_RESOURCE
from tidemark.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidemark.protocol.messages.describe_groups import DescribeGroupsRequest
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest
from tidemark.protocol.messages.list_config_resources import ListConfigResourcesRequest

MANY: Final = 200_000
MEMBERS: Final = 50_000  # of a consumer group: each of them costs more
CLASSIC, CONSUMER = "classic", "consumer"


def cases() -> Iterator[tuple[str, Any, int]]:
    yield "ListConfigResources", ListConfigResourcesRequest(), 1
    yield "DescribeGroups, one group", DescribeGroupsRequest(groups=[CLASSIC]), 5
    yield "ConsumerGroupDescribe, one group", ConsumerGroupDescribeRequest(group_ids=[CONSUMER]), 1


def classic_group(count: int = MANY, assignment: bytes = b"a") -> Iterator[CoordinatorRecord]:
    members = [
        MemberMetadata(
            member_id=f"m{number}", client_id="c", client_host="/h", subscription=b"s", assignment=assignment
        )
        for number in range(count)
    ]
    # Not of the protocol type whose subscriptions are read when it is restored.
    value = GroupMetadataValue(protocol_type="other", generation=1, protocol="p", leader="m0", members=members)
    yield CoordinatorRecord(GroupMetadataKey(group=CLASSIC), value)


def consumer_group() -> Iterator[CoordinatorRecord]:
    yield CoordinatorRecord(ConsumerGroupMetadataKey(group_id=CONSUMER), ConsumerGroupMetadataValue(epoch=1))
    for number in range(MEMBERS):
        key = ConsumerGroupMemberMetadataKey(group_id=CONSUMER, member_id=f"m{number}")
        value = ConsumerGroupMemberMetadataValue(client_id="c", client_host="/h", subscribed_topic_names=["t"])
        yield CoordinatorRecord(key, value)


async def only_shard(node: Any, connect: Any) -> Any:
    await (await connect(node)).ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    async with asyncio.timeout(20):
        while not (hosts := list(node._coordinators.groups)) or hosts[0].is_loading:
            await asyncio.sleep(0.01)
    return hosts[0].shard


async def test_no_long_answer_keeps_the_loop(
    start_node: Any,
    connect: Any,
    frozen_heap: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = await start_node(offsets_topic_num_partitions="1")
    shard = await only_shard(node, connect)
    for record in (*classic_group(), *consumer_group()):
        shard.replay(record)
    names = {(GROUP_RESOURCE, f"group.{number}"): {"consumer.session.timeout.ms": "45000"} for number in range(MANY)}
    node._store.image = replace(node._store.image, configs=names)
    await node.warm_up()
    kept = await asyncio.to_thread(each_answered, cases(), node.address, LoopWatch(monkeypatch))
    assert too_long(kept, capsys) == set()


async def test_a_group_is_told_as_it_was_when_the_answer_began(start_node: Any, connect: Any) -> None:
    node = await start_node(offsets_topic_num_partitions="1")
    shard = await only_shard(node, connect)
    for record in classic_group(3, b"before"):
        shard.replay(record)
    call: Any = SimpleNamespace(version=5)
    answering = describe_groups(DescribeGroupsRequest(groups=[CLASSIC]), call, groups=node._coordinators.groups)
    next(answering)
    for record in classic_group(2, b"after"):
        shard.replay(record)
    [group] = at_once(answering).groups
    assert [(each.member_id, each.member_assignment) for each in group.members] == [
        (f"m{number}", b"before") for number in range(3)
    ]
