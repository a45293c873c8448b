"""Fetch (key 1): read record batches, as a consumer or as a follower.

Version 7 brought sessions (KIP-227), 12 epochs and the tagged hints, 13 topic ids, 15 the replica's own state, 17 its
directory and 18 the high watermark it knows. A response goes out through `encode_parts`: its records are file slices.
"""

from __future__ import annotations

from typing import Any

from tidemark.protocol.schema import (
    Bytes,
    Slice,
    array,
    int8,
    int16,
    int32,
    int64,
    message,
    nested,
    records,
    string,
    struct,
    uuid,
)


@struct
class ReplicaState:
    replica_id: int = int32("15+", default=-1)
    replica_epoch: int = int64("15+", default=-1)


@struct
class FetchPartition:
    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()
    replica_directory_id: bytes = uuid("17+", tag=0)
    high_watermark: int = int64("18+", tag=1, default=9223372036854775807)


@struct
class FetchTopic:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


@struct
class ForgottenTopic:
    topic: str = string("7-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = array("int32", "7+")


@message(key=1, versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = string("12+", nullable="12+", tag=0, default=None)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = nested(ReplicaState, "15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")


@struct
class EpochEndOffset:
    epoch: int = int32("12+", default=-1)
    end_offset: int = int64("12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = int32("12+", default=-1)
    leader_epoch: int = int32("12+", default=-1)


@struct
class SnapshotId:
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@struct
class AbortedTransaction:
    producer_id: int = int64()
    first_offset: int = int64()


@struct
class PartitionData:
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    diverging_epoch: EpochEndOffset = nested(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch = nested(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId = nested(SnapshotId, "12+", tag=2)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+", default=None)
    preferred_read_replica: int = int32("11+", default=-1)
    records: Bytes | Slice | list[Any] | None = records(nullable="0+")


@struct
class FetchableTopicResponse:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


@struct
class NodeEndpoint:
    node_id: int = int32("16+")
    host: str = string("16+")
    port: int = int32("16+")
    rack: str | None = string("16+", nullable="16+", default=None)


@message(key=1, versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
