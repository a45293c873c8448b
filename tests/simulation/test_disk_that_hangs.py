"""A disk that hangs under one node, metadata and data alike, does not stop the topics that wait for syncs."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from tidemark.broker.peers import PeerUnavailable
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tidemark.protocol.records import Record, build_batch
from tidemark.simulation import Cluster
from tidemark.simulation.client import KafkaClient

TOPIC = "synced"
PARTITIONS = 3  # one for each node to lead
HANGS_SECONDS = 16.0
GAP_SECONDS_MAX = 7.0  # 5 until the leader gives up on its sync; the rest is for the controller and the client
PATIENT_SECONDS = 30.0  # as long as clients wait by default: none of them helps itself by giving up early


@pytest.mark.parametrize("of_the_controller", [True, False])
def test_topics_that_wait_for_syncs_go_on_when_the_disk_of_a_node_hangs(of_the_controller: bool) -> None:
    with Cluster(f"hung disk of the controller: {of_the_controller}") as cluster:
        cluster.start()
        cluster.call(create(cluster))
        acknowledged: dict[int, list[float]] = {partition: [] for partition in range(PARTITIONS)}
        for partition, times in acknowledged.items():
            cluster.new_client(f"producer-{partition}").spawn(produce(cluster, partition, times))
        cluster.run_until(lambda: all(len(times) > 10 for times in acknowledged.values()), seconds_max=30)
        hung = next(each for each in cluster.brokers if (each == controller(cluster)) == of_the_controller)
        began = cluster.world.now
        cluster.brokers[hung].machine.disk.hangs_until = began + HANGS_SECONDS
        cluster.run(HANGS_SECONDS + 5)
        for times in acknowledged.values():
            assert longest_gap([began, *(time for time in times if time > began), cluster.world.now]) < GAP_SECONDS_MAX


def controller(cluster: Cluster) -> int:
    node = cluster.brokers[1].node
    assert node is not None
    leader_id = node._store.leader_id
    assert leader_id is not None
    return leader_id


def longest_gap(times: list[float]) -> float:
    return max(after - before for before, after in pairwise(times))


async def create(cluster: Cluster) -> None:
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=PARTITIONS,
        replication_factor=3,
        configs=[CreatableTopicConfig(name="flush.messages", value="1")],
    )
    client = KafkaClient(cluster.bootstrap, client_id="admin")
    answer = await client.ask_any(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, version=5)
    assert answer.topics[0].error_code == ErrorCode.NONE


async def produce(cluster: Cluster, partition: int, acknowledged: list[float]) -> None:
    client = KafkaClient(cluster.bootstrap, client_id=f"producer-{partition}")
    data = PartitionProduceData(index=partition, records=bytes(build_batch([Record(value=b"synced")])))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=round(PATIENT_SECONDS * 1000),
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )
    while True:
        try:
            address = await client.leader_of(TOPIC, partition)
            answer = await client.ask(address, request, ProduceResponse, version=9, seconds=PATIENT_SECONDS)
            code = answer.responses[0].partition_responses[0].error_code
        except PeerUnavailable:
            code = ErrorCode.NETWORK_EXCEPTION
        if code == ErrorCode.NONE:
            acknowledged.append(monotonic())
        else:
            client.forget_leader(TOPIC, partition)
        await asyncio.sleep(0.1)
