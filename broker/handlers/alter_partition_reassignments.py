"""AlterPartitionReassignments: move partitions to other replicas, or cancel a move by null replicas (KIP-455).

All partitions of a request change in one commit; a refused one does not hold up the others. The controller decides;
other brokers forward the request to it.

v1: AllowReplicationFactorChange (KIP-860)
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image, TopicImage, partition_record
from tidemark.broker.metadata.reassignment import reassign
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@handles(AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, on_controller=True)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> AlterPartitionReassignmentsResponse:
    results: list[ReassignableTopicResponse] = []

    def one(image: Image, topic: TopicImage | None, partition: ReassignablePartition) -> list[Record]:
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no such topic.")
        after = reassign(
            image,
            topic,
            partition.partition_index,
            partition.replicas,
            settings.current,
            factor_may_change=request.allow_replication_factor_change,
        )
        if after is topic.partitions[partition.partition_index]:
            return []
        return [partition_record(topic.topic_id, partition.partition_index, after)]

    def decide(image: Image) -> Job[list[Record]]:
        results.clear()
        records: list[Record] = []
        for wanted in request.topics:
            result = ReassignableTopicResponse(name=wanted.name)
            results.append(result)
            yield
            for partition in wanted.partitions:
                yield
                answer = ReassignablePartitionResponse(partition_index=partition.partition_index)
                result.partitions.append(answer)
                try:
                    records += one(image, image.topics.get(wanted.name), partition)
                except Refused as refusal:
                    answer.error_code, answer.error_message = refusal.code, refusal.message
        return records

    await store.change(decide)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change, responses=results
    )
