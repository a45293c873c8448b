"""ConsumerGroupHeartbeat (key 68): join, stay in and leave a group that the broker itself assigns (KIP-848).

Null in a request means unchanged since the last heartbeat. Version 1 has the regular expression.
"""

from __future__ import annotations

from tidemark.protocol.schema import array, int16, int32, message, nested, string, struct, uuid


@struct
class TopicPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = array("int32")


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array("string", nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


@message(key=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nested(Assignment, nullable="0+", default=None)
