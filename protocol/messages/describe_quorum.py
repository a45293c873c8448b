"""DescribeQuorum (key 55): voters, observers and leader of the metadata quorum, how far each is (KIP-595, KIP-836)."""

from __future__ import annotations

from tidemark.protocol.schema import array, int16, int32, int64, message, string, struct, uint16, uuid


@struct
class PartitionData:
    partition_index: int = int32()


@struct
class TopicData:
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


@message(key=55, versions="0-2", flexible="0+", listeners="broker controller")
class DescribeQuorumRequest:
    topics: list[TopicData] = array(TopicData)


@struct
class ReplicaState:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@struct
class PartitionResult:
    """Kafka calls this PartitionData, too."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


@struct
class TopicResult:
    """Kafka calls this TopicData, too."""

    topic_name: str = string()
    partitions: list[PartitionResult] = array(PartitionResult)


@struct
class Listener:
    name: str = string()
    host: str = string()
    port: int = uint16()


@struct
class Node:
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


@message(key=55, versions="0-2", flexible="0+")
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", default=None)
    topics: list[TopicResult] = array(TopicResult)
    nodes: list[Node] = array(Node, "2+")
