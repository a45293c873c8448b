"""Who may fetch as a replica: a registered broker in its present life, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.broker.replication.conftest import TOPIC_ID, Cluster
from tidemark.broker.core.deferred import awaited
from tidemark.broker.replication.fetch_session import NO_DIVERGENCE
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

NewCluster = Callable[..., Cluster]


async def fetch_as(
    cluster: Cluster, node_id: int, epoch: int, *, offset: int = 0, session_id: int = 0, session_epoch: int = -1
) -> FetchResponse:
    asked = FetchPartition(partition=0, fetch_offset=offset, current_leader_epoch=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=node_id, replica_epoch=epoch),
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[asked])],
    )
    return await awaited(cluster.nodes[1].follower_sessions.fetch(request))


@pytest.mark.parametrize("epoch", [-1, 101, 103], ids=["none", "an earlier one", "a later one"])
async def test_a_fetch_without_the_exact_broker_epoch_acknowledges_nothing(new_cluster: NewCluster, epoch: int) -> None:
    cluster = new_cluster(nodes=2)
    await cluster.stop(2)
    last = cluster.append(1, b"a")
    response = await fetch_as(cluster, 2, epoch, offset=last + 1)
    assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.led(1).must_wait(last), "the follower has not got it"


async def test_a_follower_that_asks_for_more_than_there_is_acknowledges_nothing(new_cluster: NewCluster) -> None:
    """Its log is another one: it may have none of what the leader has, and must not count as in sync."""
    cluster = new_cluster(nodes=2)
    await cluster.stop(2)
    last = cluster.append(1, b"a")
    response = await fetch_as(cluster, 2, 102, offset=last + 100, session_epoch=0)
    assert response.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.led(1).must_wait(last), "the follower has not got it"
    assert cluster.led(1).leadership.followers[2].offset < 0


async def test_a_forged_full_fetch_does_not_close_a_followers_session(new_cluster: NewCluster) -> None:
    cluster = new_cluster(nodes=2)
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    session = cluster.nodes[1].follower_sessions._sessions[2]
    assert (await fetch_as(cluster, 2, -1)).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert await cluster.acknowledged(1, cluster.append(1, b"b")) is None
    assert cluster.nodes[1].follower_sessions._sessions[2] is session


async def test_ids_that_are_not_registered_get_no_session(new_cluster: NewCluster) -> None:
    cluster = new_cluster(nodes=2)
    for invented in (1, 7, 8, 9):  # 1 is the leader itself
        response = await fetch_as(cluster, invented, 100 + invented)
        assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    await cluster.until(lambda: set(cluster.nodes[1].follower_sessions._sessions) == {2})


async def test_the_session_of_a_broker_that_is_unregistered_is_closed(new_cluster: NewCluster) -> None:
    cluster = new_cluster(nodes=2)
    assert await cluster.acknowledged(1, cluster.append(1, b"a")) is None
    await cluster.stop(2)
    brokers = {1: cluster.image.brokers[1]}
    cluster.image = replace(cluster.image, brokers=brokers)
    cluster.tell(cluster.nodes[1])
    assert not cluster.nodes[1].follower_sessions._sessions


def test_what_says_that_logs_do_not_differ_is_the_default_that_encoders_leave_out_without_a_look() -> None:
    assert PartitionData().diverging_epoch is NO_DIVERGENCE
