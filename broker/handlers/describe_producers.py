"""DescribeProducers: the producers that have lately written to a partition, and their open transactions (KIP-664)."""

from __future__ import annotations

from tidemark.broker.core.errors import EXPECTED, fault_of
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handles(DescribeProducersRequest, DescribeProducersResponse)
def describe_producers(
    request: DescribeProducersRequest, _call: Call, *, replicas: ReplicaTable
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_one(replicas, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _one(replicas: ReplicaTable, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index)
    try:
        partition = replicas.leader_of(topic, index)
    except EXPECTED as error:
        answer.error_code, answer.error_message, _ = fault_of(error, where=f"{topic}-{index}")
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=producer.last_sequence,
            last_timestamp=producer.last_timestamp,
            coordinator_epoch=producer.coordinator_epoch,
            current_txn_start_offset=producer.current_txn_first_offset,
        )
        for producer in partition.log.producers()
    ]
    return answer
