from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

PREFERRED, UNCLEAN = 0, 1
TYPES_FROM = 1

Codes = dict[tuple[str, int], int]


async def elect(
    client: Any, version: int, *partitions: tuple[str, int], every: bool = False, kind: int = PREFERRED
) -> Codes:
    wanted = [TopicPartitions(topic=topic, partitions=[index]) for topic, index in partitions]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None if every else wanted, timeout_ms=10_000)
    answer = await client.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    return {
        (topic.topic, each.partition_id): each.error_code
        for topic in answer.replica_election_results
        for each in topic.partition_result
    }


async def test_where_the_preferred_leader_leads_nothing_is_needed(shared: Any, topic: str, version: int) -> None:
    assert await elect(shared, version, (topic, 0)) == {(topic, 0): ErrorCode.ELECTION_NOT_NEEDED}
    told = await elect(shared, version, (topic, 99), ("missing", 0))
    assert set(told.values()) == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await elect(shared, version) == {}


async def test_who_asks_for_all_hears_only_of_those_that_changed(shared: Any, topic: str, version: int) -> None:
    assert await elect(shared, version, every=True) == {}


@pytest.mark.parametrize("version", [TYPES_FROM, 2])
async def test_a_type_that_does_not_exist_is_refused(shared: Any, topic: str, version: int) -> None:
    wanted = [TopicPartitions(topic=topic, partitions=[0])]
    request = ElectLeadersRequest(election_type=7, topic_partitions=wanted, timeout_ms=10_000)
    assert (await shared.ask(request, version)).error_code == ErrorCode.INVALID_REQUEST


async def away_from_preferred(cluster: Any) -> None:
    """Broker 2 is preferred and in sync, and broker 1 leads."""
    await cluster.join(2)
    await cluster.create("t", [2, 1])
    await cluster.heartbeat(2, want_fence=True)
    assert cluster.partition().leader == 1


async def in_sync_again(cluster: Any) -> None:
    await cluster.heartbeat(2)
    assert (await cluster.alter_isr(1, 2, leader=1)).error_code == 0


@pytest.mark.parametrize("every", [True, False])
async def test_the_preferred_leader_leads_again(cluster: Any, every: bool) -> None:
    await away_from_preferred(cluster)
    not_there = await elect(cluster.client, 2, ("t", 0))
    assert not_there == {("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    assert cluster.partition().leader == 1
    await in_sync_again(cluster)
    epoch = cluster.partition().leader_epoch
    assert await elect(cluster.client, 2, ("t", 0), every=every) == {("t", 0): 0}
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (2, epoch + 1)


async def test_an_unclean_election_takes_any_replica_that_lives_where_there_is_no_leader(cluster: Any) -> None:
    await away_from_preferred(cluster)  # and so broker 2 may lack records
    assert await elect(cluster.client, 2, ("t", 0), kind=UNCLEAN) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    await cluster.join(3)
    await cluster.create("u", [3, 2])
    await cluster.heartbeat(3, want_fence=True)
    assert cluster.partition("u").leader == -1
    assert await elect(cluster.client, 2, ("u", 0), kind=UNCLEAN) == {
        ("u", 0): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    }
    await cluster.heartbeat(2)
    assert await elect(cluster.client, 2, ("u", 0), kind=UNCLEAN) == {("u", 0): 0}
    assert cluster.partition("u").leader == 2
