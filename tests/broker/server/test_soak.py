"""Every API, again and again, with ever new names and ids: what a client can make the broker remember has a bound.

What is kept for a time (members, transactional ids, producers) is given a short one here, and must go with it.
TIDEMARK_SOAK_REQUESTS says how many requests of each kind: more of them show smaller leaks.
"""

from __future__ import annotations

import asyncio
import gc
import os
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from tests.broker.server.worst_requests import TOPIC, Largest
from tidemark.broker.core.api_table import served_on
from tidemark.broker.core.registry import Route, find_route
from tidemark.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidemark.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidemark.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemark.protocol.records import Record, build_batch

REQUESTS: Final = int(os.environ.get("TIDEMARK_SOAK_REQUESTS", "60"))
BYTES_PER_REQUEST_MAX: Final = 60  # a name that is kept costs more
SLACK_BYTES: Final = 48 << 10  # tables that grow in steps
GROWTH_MAX: Final = BYTES_PER_REQUEST_MAX + SLACK_BYTES / REQUESTS
ROUNDS_MAX: Final = 4
SETTLE_SECONDS_MAX: Final = 6.0
STEADY_SAMPLES: Final = 8  # of 50 ms: longer than what is kept for a time is kept

SETTINGS: Final = {
    "group_initial_rebalance_delay_ms": "0",
    "group_min_session_timeout_ms": "1",
    "group_consumer_min_session_timeout_ms": "1",
    "group_consumer_session_timeout_ms": "100",
    "group_consumer_min_heartbeat_interval_ms": "1",
    "group_consumer_heartbeat_interval_ms": "20",
    "transactional_id_expiration_ms": "100",
    "transaction_remove_expired_transaction_cleanup_interval_ms": "100",
    "producer_id_expiration_ms": "100",
    "producer_id_expiration_check_interval_ms": "100",
    "max_incremental_fetch_session_cache_slots": "20",
    "offsets_retention_check_interval_ms": "100",
    "offsets_topic_num_partitions": "2",
    "transaction_state_log_num_partitions": "2",
}
_numbers = count(1_000_000)


def _join() -> Any:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"x" * 100)]
    name = f"group.{next(_numbers)}"
    return JoinGroupRequest(group_id=name, session_timeout_ms=100, protocol_type="consumer", protocols=protocols)


def _heartbeat() -> Any:
    number = next(_numbers)
    return ConsumerGroupHeartbeatRequest(
        group_id=f"group.{number}",
        member_id=f"member.{number}",
        rebalance_timeout_ms=100,
        subscribed_topic_names=[f"topic.{number}"],
        topic_partitions=[],
    )


def _transaction() -> Any:
    return InitProducerIdRequest(transactional_id=f"transaction.{next(_numbers)}", transaction_timeout_ms=100)


def _session() -> Any:
    partitions = [FetchPartition(partition=index, partition_max_bytes=1) for index in range(5)]
    topic = FetchTopic(topic=f"topic.{next(_numbers)}", partitions=partitions)
    return FetchRequest(session_epoch=0, max_bytes=1, topics=[topic])


def _offsets() -> Any:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=f"group.{next(_numbers)}", topics=None)])


def _produce() -> Any:
    batch = build_batch([Record(value=b"x")], producer_id=next(_numbers), producer_epoch=0, base_sequence=0)
    data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])


# What is remembered for a while: new names each time, and versions in which that happens.
KEPT: dict[str, tuple[Callable[[], Any], int]] = {
    "JoinGroup with a new group": (_join, 9),
    "JoinGroup with a new group, before KIP-394": (_join, 3),
    "ConsumerGroupHeartbeat with a new group": (_heartbeat, 1),
    "InitProducerId with a new transactional id": (_transaction, 4),
    "Fetch with a new session": (_session, 12),
    "OffsetFetch of a group that never was": (_offsets, 8),
    "Produce of a new producer": (_produce, 11),
}


class Renamed(Largest):
    """As the largest requests, but small, and with names that were never used before."""

    def _value(self, name: str, field: Any, level: int, index: int) -> Any:
        value = super()._value(name, field, level, index)
        return f"{value}.{next(_numbers)}" if field.kind == "string" and isinstance(value, str) else value


def scripts() -> Iterator[tuple[str, Callable[[], Any], int]]:
    for name, (make, version) in KEPT.items():
        yield name, make, version
    for key in sorted(served_on("broker")):
        route = find_route(key)
        assert route is not None
        if route.name not in ("OffsetCommit", "InitProducerId", "ConsumerGroupHeartbeat"):  # durable, or above
            yield f"{route.name} with new names", partial(_renamed, route), route.versions.last


def _renamed(route: Route) -> Any:
    return Renamed(route.name, route.versions.last, count=2, depth=2).make(route.request)


async def send_all(node: Any, connect: Any, make: Callable[[], Any], version: int) -> None:
    """On connections of which some are new, too."""
    client = await connect(node)
    for number in range(REQUESTS):
        client.send(make(), version)
        try:
            async with asyncio.timeout(10):
                size = int.from_bytes(await client.reader.readexactly(4))
                await client.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            await client.close()
            client = await connect(node)
        if number % 20 == 19:
            await client.close()
            client = await connect(node)
    await client.close()


async def used_now() -> int:
    await asyncio.sleep(0)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def settled() -> int:
    """The memory in use, when it falls no further."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLE_SECONDS_MAX
    samples: list[int] = []
    while loop.time() < until:
        await asyncio.sleep(0.05)
        gc.collect()
        samples.append(tracemalloc.get_traced_memory()[0])
        if len(samples) > STEADY_SAMPLES and min(samples[:-STEADY_SAMPLES]) <= min(samples[-STEADY_SAMPLES:]) + 1024:
            break
    return min(samples)


async def growth(send: Callable[[], Awaitable[None]], in_use: Callable[[], Awaitable[int]]) -> float:
    """Bytes per request. What was started or loaded once (a thread, a module) is no leak: that grows every time."""
    await send()
    found: list[float] = []
    before = await in_use()
    while len(found) < ROUNDS_MAX:
        await send()
        after = await in_use()
        found.append((after - before) / REQUESTS)
        before = after
        if found[-1] <= GROWTH_MAX:
            break
    return found[-1]


@pytest.mark.alone
async def test_nothing_that_clients_name_is_kept_for_ever(start_node: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async def connect(node: Any) -> Any:
        from tests.broker.conftest import Client

        return Client(*await asyncio.open_connection(*node.address))

    node = await start_node(**SETTINGS)
    client = await connect(node)
    await client.create(TOPIC, 5)
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
        await client.call(request, FindCoordinatorResponse, 4)
    await client.close()
    grown: dict[str, float] = {}
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        for name, make, version in scripts():
            in_use = settled if name in KEPT else used_now
            send = partial(send_all, node, connect, make, version)
            grown[name] = await growth(send, in_use)
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    with capsys.disabled():
        for name, each in sorted(grown.items(), key=lambda item: -item[1])[:10]:
            print(f"{each:8.0f} bytes/request  {name}")
    assert {name: each for name, each in grown.items() if each > GROWTH_MAX} == {}
