"""InitProducerId and DescribeProducers: identities for idempotence, and who has written to a partition lately."""

from __future__ import annotations

from broker.faults import EXPECTED, fault_of
from broker.producer_ids import ProducerIds
from broker.registry import Call, handles
from broker.replication.replicas import Replicas
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


@handles(InitProducerIdRequest, InitProducerIdResponse)
async def init_producer_id(
    request: InitProducerIdRequest, _call: Call, *, producer_ids: ProducerIds
) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        # No transaction coordinator here yet, and FindCoordinator is not served: no client gets this far by itself.
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)


@handles(DescribeProducersRequest, DescribeProducersResponse)
def describe_producers(
    request: DescribeProducersRequest, _call: Call, *, replicas: Replicas
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=[_one(replicas, topic.name, index) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


def _one(replicas: Replicas, topic: str, index: int) -> PartitionResponse:
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
