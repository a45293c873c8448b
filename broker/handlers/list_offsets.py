"""ListOffsets: the ends of a partition, or the first record at or after a time.

Negative timestamps have meanings of their own; those about tiered storage are answered as a log that is all local. A
partition that is named twice is refused. A new leader that does not know its high watermark yet answers
OFFSET_NOT_AVAILABLE.

v2: isolation level: the last stable offset for read_committed (KIP-98)
v4: leader epochs (KIP-320)
v5: OFFSET_NOT_AVAILABLE; before, it was LEADER_NOT_AVAILABLE (KIP-207)
v6: flexible (KIP-482)
v7: -3, the record with the largest timestamp (KIP-734)
v8: -4, the earliest local offset (KIP-405)
v9: -5, the latest offset in tiered storage (KIP-1005)
v10: a timeout for tiered storage (KIP-1075)
v11: -6, the earliest offset that is still to be uploaded (KIP-1023)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.errors import EXPECTED, Refused, check_leader_epoch, fault_of
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import repeated
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

READ_COMMITTED: Final = 1
OFFSET_NOT_AVAILABLE_FROM: Final = 5  # KIP-207
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
SPECIAL_FROM_VERSION: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}


@handles(ListOffsetsRequest, ListOffsetsResponse)
def list_offsets(request: ListOffsetsRequest, call: Call, *, replicas: ReplicaTable) -> Job[ListOffsetsResponse]:
    twice = repeated((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    committed = request.isolation_level == READ_COMMITTED
    response = ListOffsetsResponse()
    for topic in request.topics:
        result = ListOffsetsTopicResponse(name=topic.name)
        for each in topic.partitions:
            result.partitions.append(_one(replicas, topic.name, each, call.version, twice, committed))
            yield
        response.topics.append(result)
    return response


def _one(
    replicas: ReplicaTable,
    topic: str,
    asked: ListOffsetsPartition,
    version: int,
    twice: set[tuple[str, int]],
    committed: bool,
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    try:
        if (topic, asked.partition_index) in twice:
            raise Refused(ErrorCode.INVALID_REQUEST, "the partition is in the request twice")
        partition = replicas.leader_of(topic, asked.partition_index)
        check_leader_epoch(asked.current_leader_epoch, partition.leader_epoch)
        end = partition.last_stable_offset if committed else partition.high_watermark
        _find(partition, asked.timestamp, answer, version, end)
    except EXPECTED as error:
        answer.error_code = fault_of(error, where=f"{topic}-{asked.partition_index}").code
    return answer


def _find(partition: Partition, timestamp: int, answer: ListOffsetsPartitionResponse, version: int, end: int) -> None:
    """`end` is where what this client may see ends."""
    log = partition.log
    if timestamp < 0 and version < SPECIAL_FROM_VERSION.get(timestamp, 0):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in version {version}")
    if timestamp not in (EARLIEST, EARLIEST_LOCAL) and partition.high_watermark < partition.leadership.start_offset:
        # A new leader does not know yet how far all is committed: what it said would go back behind what the old said.
        known = (
            ErrorCode.OFFSET_NOT_AVAILABLE if version >= OFFSET_NOT_AVAILABLE_FROM else ErrorCode.LEADER_NOT_AVAILABLE
        )
        raise Refused(known, "the high watermark is not known yet")
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.start_offset, log.epoch_at(log.start_offset)
    elif timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        if found is not None and found.offset < end:
            answer.offset, answer.timestamp, answer.leader_epoch = found.offset, found.timestamp, found.leader_epoch
    elif timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning")
