"""What coordinators do unasked about very many things at once: clients have their turn in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

import pytest

from tests.broker.server.loop_watch import KEPT_SECONDS_MAX, LoopWatch
from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.committed_offsets import tombstone
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue
from tidemark.broker.groups.shard import TOMBSTONES_PER_BATCH, GroupShard
from tidemark.broker.groups.timers import TimerQueue
from tidemark.broker.metadata.image import Image
from tidemark.broker.transactions.transaction import Transaction, TransactionState
from tidemark.protocol.messages.delete_topics import DeleteTopicsRequest
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest

MANY: Final = 20_000
PARTITIONS: Final = 20
TOPIC: Final = "wide"


@pytest.fixture
async def node(start_node: Any, connect: Any, frozen_heap: None) -> Any:
    node = await start_node(
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
        offsets_retention_minutes="1",
        group_initial_rebalance_delay_ms="0",
    )
    client = await connect(node)
    await client.create(TOPIC, PARTITIONS)
    for key_type in (0, 1):
        await client.ask(FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"]), 4)
    await node.warm_up()
    return node


async def only(coordinator: Any) -> Any:
    """The one shard of a coordinator, when it is loaded."""
    async with asyncio.timeout(20):
        while not (hosts := list(coordinator)) or hosts[0].is_loading:
            await asyncio.sleep(0.01)
    return hosts[0]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


async def kept(work: Coroutine[Any, Any, None], monkeypatch: pytest.MonkeyPatch) -> tuple[float, str]:
    watch = LoopWatch(monkeypatch)
    await asyncio.create_task(work)
    await asyncio.sleep(0)
    return watch.take()


async def test_thousands_of_transactions_that_time_out_do_not_keep_the_loop(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (await only(node._coordinators.transactions)).shard
    for number in range(MANY):
        name = f"transaction.{number}"
        shard.transactions[name] = Transaction(
            name, number, 1, producer_epoch=0, state=TransactionState.ONGOING,
            partitions=frozenset({(TOPIC, number % PARTITIONS)}), start_ms=1, update_ms=1,
        )  # fmt: skip
    seconds, what = await kept(node._coordinators.abort_timed_out(), monkeypatch)
    assert all(each.state is not TransactionState.ONGOING for each in shard.transactions.values())
    assert seconds < KEPT_SECONDS_MAX, what


async def test_thousands_of_transactional_ids_that_expire_do_not_keep_the_loop(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (await only(node._coordinators.transactions)).shard
    for number in range(MANY):
        name = f"transaction.{number}"
        shard.transactions[name] = Transaction(name, number, 1, producer_epoch=0, start_ms=1, update_ms=1)
    seconds, what = await kept(node._coordinators.forget_expired(), monkeypatch)
    assert shard.transactions == {}
    assert seconds < KEPT_SECONDS_MAX, what


def commit(shard: Any, partitions: int) -> None:
    """By very many groups, each without members."""
    for number in range(MANY):
        for index in range(partitions):
            key = OffsetCommitKey(group=f"group.{number}", topic=TOPIC, partition=index)
            shard.replay(CoordinatorRecord(key, OffsetCommitValue(offset=1, commit_timestamp=1)))


async def test_thousands_of_offsets_that_expire_do_not_keep_the_loop(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (await only(node._coordinators.groups)).shard
    commit(shard, 1)
    seconds, what = await kept(node._coordinators.expire_offsets(), monkeypatch)
    assert shard.groups == {}
    assert seconds < KEPT_SECONDS_MAX, what


async def test_the_offsets_of_one_group_that_expire_together_do_not_keep_the_loop(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = (await only(node._coordinators.groups)).shard
    for index in range(5 * MANY):
        key = OffsetCommitKey(group="g", topic=TOPIC, partition=index)
        shard.replay(CoordinatorRecord(key, OffsetCommitValue(offset=1, commit_timestamp=1)))
    seconds, what = await kept(node._coordinators.expire_offsets(), monkeypatch)
    assert shard.groups == {}
    assert not shard.offsets.group_ids()
    assert seconds < KEPT_SECONDS_MAX, what


async def test_the_offsets_of_a_deleted_topic_go_without_keeping_the_loop(
    node: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await connect(node)
    shard = (await only(node._coordinators.groups)).shard
    commit(shard, 5)
    watch = LoopWatch(monkeypatch)
    await client.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=30_000), 5)
    await eventually(lambda: not shard.offsets.group_ids())
    seconds, what = watch.take()
    assert seconds < KEPT_SECONDS_MAX, what


async def test_timers_that_go_off_together_do_not_keep_the_loop(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = (await only(node._coordinators.groups)).shard
    commit(shard, 1)
    watch = LoopWatch(monkeypatch)
    for group_id in list(shard.groups):
        decided = CoordinatorResult([tombstone(group_id, TOPIC, 0)], refuse=lambda _: None)
        shard.timers.set(1, lambda _now_ms, decided=decided: decided)
    watch.take()
    await eventually(lambda: not shard.offsets.group_ids())
    seconds, what = watch.take()
    assert seconds < KEPT_SECONDS_MAX, what


def test_offsets_that_were_committed_for_a_new_topic_of_the_name_stay() -> None:
    """While those of the deleted one go, slice by slice."""
    shard = GroupShard(config=BrokerConfig(), image=Image(), random=Random(1), timers=TimerQueue())
    keys = [OffsetCommitKey(group="g", topic=TOPIC, partition=index) for index in range(TOMBSTONES_PER_BATCH + 1)]
    for key in keys:
        shard.replay(CoordinatorRecord(key, OffsetCommitValue(offset=1)))
    going = shard.forget_topics({TOPIC})
    first = next(going)
    assert first is not None
    shard.apply(first)
    assert next(going) is None
    shard.replay(CoordinatorRecord(keys[-1], OffsetCommitValue(offset=2)))
    assert list(filter(None, going)) == []
    assert [value.offset for value in shard.offsets.of_topic("g", TOPIC).values()] == [2]
