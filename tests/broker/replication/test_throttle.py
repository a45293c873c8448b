"""Replication that is held to a rate, and what is never held to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.config.key import LONG_MAX
from tidemark.broker.metadata.image import BROKER_RESOURCE, TOPIC_RESOURCE
from tidemark.broker.replication.throttle import Throttle, is_listed

New = Callable[..., Any]


def test_a_second_s_worth_comes_at_once_and_debts_are_waited_for() -> None:
    throttle = Throttle(lambda: 100)
    assert throttle.wait(10.0) == 0
    throttle.spent(350, 10.0)
    assert throttle.wait(10.0) == pytest.approx(2.5)
    assert throttle.wait(12.0) == pytest.approx(0.5)
    assert throttle.wait(12.6) == 0
    assert throttle.wait(99.0) == 0
    throttle.spent(101, 99.0)
    assert throttle.wait(99.0) > 0, "an idle time is not saved up"


def test_without_a_rate_nothing_waits() -> None:
    throttle = Throttle(lambda: LONG_MAX)
    throttle.spent(1 << 40, 1.0)
    assert throttle.wait(1.0) == 0
    assert not throttle.is_set


def test_replicas_are_listed_by_partition_and_broker() -> None:
    assert is_listed(("0:1", "2:3"), index=2, node_id=3)
    assert not is_listed(("0:1", "2:3"), index=2, node_id=1)
    assert is_listed(("*",), index=7, node_id=7)
    assert not is_listed((), index=0, node_id=1)


def set_throttle(cluster: Any, *, rate: int, leader: str = "", follower: str = "") -> None:
    """As ReassignPartitionsCommand does."""
    rates = {"leader.replication.throttled.rate": str(rate), "follower.replication.throttled.rate": str(rate)}
    lists = {"leader.replication.throttled.replicas": leader, "follower.replication.throttled.replicas": follower}
    cluster.configure({(TOPIC_RESOURCE, "t"): lists, **{(BROKER_RESOURCE, str(node)): rates for node in cluster.nodes}})


@pytest.mark.parametrize("side", ["leader", "follower"])
async def test_a_replica_out_of_sync_is_held_to_the_rate_until_that_is_taken_away(new_cluster: New, side: str) -> None:
    cluster = new_cluster()
    await cluster.stop(3)
    for _ in range(40):
        last = cluster.append(1, bytes(10_000))
    cluster.answer_alter = lambda _: "refuse"
    cluster.become(isr=(1, 2))
    assert await cluster.acknowledged(1, last) is None
    cluster.answer_alter = lambda _: "agree"
    set_throttle(cluster, rate=40_000, **{side: "*"})
    cluster.start(3)
    set_throttle(cluster, rate=40_000, **{side: "*"})
    began = time.monotonic()
    await cluster.until(lambda: cluster.replica(3).log.end_offset >= 8)
    assert cluster.replica(3).log.end_offset <= 12, "it comes in pieces of about a second's worth"
    await cluster.until(lambda: cluster.replica(3).log.end_offset >= 13)
    assert cluster.replica(3).log.end_offset <= 8 + 4 * (time.monotonic() - began + 1), "400 KB take ten seconds"
    last = cluster.append(1, b"meanwhile")
    assert await cluster.acknowledged(1, last) is None, "a replica in sync is not held back"
    set_throttle(cluster, rate=LONG_MAX)
    await cluster.until(lambda: cluster.replica(3).log.end_offset == last + 1)
    await cluster.until(lambda: set(cluster.partition.isr) == {1, 2, 3})
    assert cluster.values(3) == cluster.values(1)


async def test_who_is_in_sync_is_never_held_back(new_cluster: New) -> None:
    cluster = new_cluster()
    set_throttle(cluster, rate=1, leader="*", follower="*")
    for number in range(30):
        assert await cluster.acknowledged(1, cluster.append(1, b"%d" % number * 1000)) is None
    assert cluster.partition.isr == (1, 2, 3)
