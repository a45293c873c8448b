"""A cluster's nodes, quorum and partitions, as its describe APIs tell them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tidemark.cli.cluster_client import ClusterClient, check
from tidemark.protocol.messages import describe_quorum
from tidemark.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tidemark.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)

METADATA_TOPIC = "__cluster_metadata"


class Broker(NamedTuple):
    broker_id: int
    address: str
    rack: str | None
    is_fenced: bool
    quorum_role: str | None
    quorum_lag: int | None


class Partition(NamedTuple):
    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    elr: list[int]


class ClusterState(NamedTuple):
    cluster_id: str
    controller_id: int
    quorum_leader_id: int
    epoch: int
    brokers: list[Broker]
    partitions: list[Partition]

    @property
    def topics(self) -> set[str]:
        return {each.topic for each in self.partitions}

    def as_json(self) -> dict[str, Any]:
        return {
            **self._asdict(),
            "brokers": [each._asdict() for each in self.brokers],
            "partitions": [each._asdict() for each in self.partitions],
        }


def describe_cluster(cluster: ClusterClient) -> ClusterState:
    broker = cluster.brokers[0]
    request = DescribeClusterRequest(include_fenced_brokers=True)
    described = cluster.call(broker, request, DescribeClusterResponse, 2)
    check(described.error_code, "The cluster")
    quorum = _quorum(cluster, broker)
    end = max((each.log_end_offset for each in quorum.current_voters), default=0)
    roles = {each.replica_id: ("observer", end - each.log_end_offset) for each in quorum.observers}
    roles |= {each.replica_id: ("voter", end - each.log_end_offset) for each in quorum.current_voters}
    return ClusterState(
        cluster_id=described.cluster_id,
        controller_id=described.controller_id,
        quorum_leader_id=quorum.leader_id,
        epoch=quorum.leader_epoch,
        brokers=[
            Broker(
                broker_id=each.broker_id,
                address=f"{each.host}:{each.port}",
                rack=each.rack,
                is_fenced=each.is_fenced,
                quorum_role=roles.get(each.broker_id, (None, None))[0],
                quorum_lag=roles.get(each.broker_id, (None, None))[1],
            )
            for each in sorted(described.brokers, key=lambda each: each.broker_id)
        ],
        partitions=_partitions(cluster, broker),
    )


def _quorum(cluster: ClusterClient, broker: int) -> describe_quorum.PartitionResult:
    wanted = describe_quorum.TopicData(topic_name=METADATA_TOPIC, partitions=[describe_quorum.PartitionData()])
    request = describe_quorum.DescribeQuorumRequest(topics=[wanted])
    answer = cluster.call(broker, request, describe_quorum.DescribeQuorumResponse, 2)
    check(answer.error_code, "The quorum")
    partition = answer.topics[0].partitions[0]
    check(partition.error_code, "The quorum")
    return partition


def _partitions(cluster: ClusterClient, broker: int) -> list[Partition]:
    names = sorted({topic for topic, _ in cluster.leaders})
    found: list[Partition] = []
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names])
    while names:
        answer = cluster.call(broker, request, DescribeTopicPartitionsResponse, 0)
        for topic in answer.topics:
            found += [
                Partition(
                    topic=topic.name or "",
                    partition=each.partition_index,
                    leader=each.leader_id,
                    replicas=each.replica_nodes,
                    isr=each.isr_nodes,
                    elr=each.eligible_leader_replicas or [],
                )
                for each in topic.partitions
            ]
        if answer.next_cursor is None:
            break
        request.cursor = answer.next_cursor
    return found
