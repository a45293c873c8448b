"""AlterPartition (key 56): a leader asks the controller to change its in-sync replicas (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

from tidemark.protocol.schema import array, int8, int16, int32, int64, message, struct, uuid


@struct
class BrokerState:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@struct
class PartitionData:
    partition_index: int = int32()
    leader_epoch: int = int32()
    new_isr: list[int] = array("int32", "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


@struct
class TopicData:
    topic_id: bytes = uuid("2+")
    partitions: list[PartitionData] = array(PartitionData)


@message(key=56, versions="2-3", flexible="0+", listeners="controller")
class AlterPartitionRequest:
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    topics: list[TopicData] = array(TopicData)


@struct
class PartitionResult:
    """Kafka calls this PartitionData, too."""

    partition_index: int = int32()
    error_code: int = int16()
    leader_id: int = int32()
    leader_epoch: int = int32()
    isr: list[int] = array("int32")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32()


@struct
class TopicResult:
    """Kafka calls this TopicData, too."""

    topic_id: bytes = uuid("2+")
    partitions: list[PartitionResult] = array(PartitionResult)


@message(key=56, versions="2-3", flexible="0+")
class AlterPartitionResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    topics: list[TopicResult] = array(TopicResult)
