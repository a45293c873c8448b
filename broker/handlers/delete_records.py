"""DeleteRecords: move the start of a partition up. Below it nothing can be read again; whole segments go."""

from __future__ import annotations

from typing import Final

from broker.errors import Refused
from broker.faults import EXPECTED, fault_of
from broker.registry import Call, handles
from broker.replication.replicas import Replicas
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_THE_HIGH_WATERMARK: Final = -1


@handles(DeleteRecordsRequest, DeleteRecordsResponse)
def delete_records(request: DeleteRecordsRequest, _call: Call, *, replicas: Replicas) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_one(replicas, topic.name, asked) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )
    replicas.checkpoint()  # a crash must not bring deleted records back
    return response


def _one(replicas: Replicas, topic: str, asked: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=-1)
    try:
        partition = replicas.leader_of(topic, asked.partition_index)
        if partition.config.cleanup_policy == {"compact"}:
            raise Refused(ErrorCode.POLICY_VIOLATION, "Records of a topic that is only compacted cannot be deleted.")
        offset = partition.high_watermark if asked.offset == TO_THE_HIGH_WATERMARK else asked.offset
        if not 0 <= offset <= partition.high_watermark:
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{offset} is above the high watermark.")
        partition.delete_before(offset)
        result.low_watermark = partition.log.start_offset
    except EXPECTED as error:
        result.error_code = fault_of(error, where=f"{topic}-{asked.partition_index}").code
    return result
