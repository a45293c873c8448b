"""Metadata (key 3): the brokers, and topics by name or by id (10 and later).

In version 0 an empty list of topics asks for all of them; from version 1 null does, and an empty list for none.
"""

from __future__ import annotations

from tidemark.protocol.schema import array, boolean, int16, int32, message, string, struct, uuid


@struct
class MetadataRequestTopic:
    topic_id: bytes = uuid("10+")
    name: str | None = string(nullable="10+")


@message(key=3, versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@struct
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="1+", default=None)


@struct
class MetadataResponsePartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = array("int32")
    isr_nodes: list[int] = array("int32")
    offline_replicas: list[int] = array("int32", "5+")


@struct
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@message(key=3, versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="2+", default=None)
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")
