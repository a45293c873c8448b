"""AssignReplicasToDirs (key 73): a broker tells in which of its log directories its replicas are (KIP-858)."""

from __future__ import annotations

from tidemark.protocol.schema import array, int16, int32, int64, message, struct, uuid


@struct
class PartitionData:
    partition_index: int = int32()


@struct
class TopicData:
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


@struct
class DirectoryData:
    id: bytes = uuid()
    topics: list[TopicData] = array(TopicData)


@message(key=73, versions="0", flexible="0+", listeners="controller")
class AssignReplicasToDirsRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


@struct
class PartitionResult:
    """Kafka calls this PartitionData, too."""

    partition_index: int = int32()
    error_code: int = int16()


@struct
class TopicResult:
    """Kafka calls this TopicData, too."""

    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


@struct
class DirectoryResult:
    """Kafka calls this DirectoryData, too."""

    id: bytes = uuid()
    topics: list[TopicResult] = array(TopicResult)


@message(key=73, versions="0", flexible="0+")
class AssignReplicasToDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryResult] = array(DirectoryResult)
