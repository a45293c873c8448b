"""ListOffsets (key 2): find offsets by timestamp, or the ends of a partition.

Negative timestamps are questions: -1 latest, -2 earliest, -3 of the largest timestamp, -4 earliest local, -5 tiered.
"""

from __future__ import annotations

from tidemark.protocol.schema import array, int8, int16, int32, int64, message, string, struct


@struct
class ListOffsetsPartition:
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


@struct
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@message(key=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
