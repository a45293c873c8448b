"""DescribeProducers: the producers that have lately written to a partition, and their open transactions (KIP-664).

Any replica answers from its own log, the leader or a follower: a tool that looks for hanging transactions may ask
one broker about all that it holds.
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from tidemark.storage import ProducerState as Producer


@handles(DescribeProducersRequest, DescribeProducersResponse)
def describe_producers(
    request: DescribeProducersRequest, _call: Call, *, replicas: ReplicaTable
) -> Job[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        yield
        described = TopicResponse(name=topic.name)
        for index in topic.partition_indexes:
            described.partitions.append((yield from _one(replicas, topic.name, index)))
            yield
        response.topics.append(described)
    return response


def _one(replicas: ReplicaTable, topic: str, index: int) -> Job[PartitionResponse]:
    answer = PartitionResponse(partition_index=index)
    try:
        replica = replicas.replica_of(topic, index)
    except Refused as refusal:
        answer.error_code, answer.error_message = refusal.code, refusal.message
        return answer
    answer.active_producers = yield from in_slices(_described, replica.log.producers())
    return answer


def _described(producer: Producer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_txn_first_offset,
    )
