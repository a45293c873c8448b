"""Classic groups with aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from harness.aiokafka_client import produce_all
from harness.broker_process import BrokerProcess
from harness.waiting import eventually_async

PARTITIONS = 4
SECONDS_MAX = 60
QUICK = {
    "group.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture(scope="module")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers(QUICK)


class Member:
    """A consumer and the task that reads from it."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        self.read: list[bytes | None] = []
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=6000,
            heartbeat_interval_ms=300,
            **settings,
        )

    async def __aenter__(self) -> Member:
        await self.consumer.start()
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self._reading.done():
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            await self.consumer.stop()

    async def _read(self) -> None:
        async for record in self.consumer:
            self.read.append(record.value)


async def eventually(probe: Callable[[], bool]) -> None:
    async def ask() -> bool:
        return probe()

    await eventually_async(ask, seconds_max=SECONDS_MAX)


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor],
    ids=["range", "roundrobin", "sticky"],
)
async def test_members_share_the_partitions_and_read_everything_once(
    broker: BrokerProcess, make_topic: Callable[..., Any], assignor: type[Any]
) -> None:
    topic = await make_topic(partitions=PARTITIONS)
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(Member(broker.bootstrap, topic, partition_assignment_strategy=[assignor]))
            for _ in range(3)
        ]

        def sizes() -> list[int]:
            return sorted(len(member.consumer.assignment()) for member in members)

        await eventually(lambda: sizes() == [1, 1, 2])
        for partition in range(PARTITIONS):
            await produce_all(broker.bootstrap, topic, [b"%d" % partition] * 50, partition=partition)
        await eventually(lambda: sum(len(member.read) for member in members) == 200)
        await members.pop().__aexit__()
        await eventually(lambda: sizes() == [2, 2])


async def test_a_committed_offset_is_where_the_next_one_goes_on(broker: BrokerProcess, made: str) -> None:
    await produce_all(broker.bootstrap, made, [b"first"] * 10)
    async with Member(broker.bootstrap, made) as member:
        await eventually(lambda: len(member.read) == 10)
    await produce_all(broker.bootstrap, made, [b"second"] * 5)
    async with Member(broker.bootstrap, made) as member:
        await eventually(lambda: len(member.read) == 5)
        assert set(member.read) == {b"second"}
