"""Produce (key 0): append record batches to partitions.

Versions 0–2 carried older record formats and are gone from Kafka 4; version 13 names topics by id only.
"""

from __future__ import annotations

from tidemark.protocol.schema import Bytes, array, int16, int32, int64, message, nested, records, string, struct, uuid


@struct
class PartitionProduceData:
    index: int = int32()
    records: Bytes | None = records(nullable="0+")


@struct
class TopicProduceData:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@message(key=0, versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = string(nullable="0+", default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


@struct
class PartitionProduceResponse:
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="8+", default=None)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "10+", tag=0)


@struct
class TopicProduceResponse:
    name: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@struct
class NodeEndpoint:
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


@message(key=0, versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
