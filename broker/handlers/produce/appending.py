"""Phase one of a produce request: who may append, and in which order.

What is appended here has its place in the log for good. Whether and when that is acknowledged is phase two (`acks`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.broker.core.errors import EXPECTED, Fault, fault_of
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.core.registry import Call
from tidemark.broker.handlers.produce.acks import Unacknowledged, is_unacknowledged
from tidemark.broker.replication import hints
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.compression import ZSTD
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidemark.protocol.schema import Bytes
from tidemark.storage import Appended

TOPIC_IDS_FROM: Final = 13
ZSTD_FROM: Final = 7

Append = Callable[[Partition, memoryview, int], Appended]


def led_partition(hosted: HostedTopic | None, index: int, acks: int, replicas: ReplicaTable) -> Partition | None:
    """The partition, if this broker may append to it now: it leads, holds its lease, and enough are in sync."""
    partition = None if hosted is None else hosted.partitions.get(index)
    if (
        partition is None
        or (acks == -1 and partition.too_few_in_sync)
        or (replicas.lease_until is not None and lease_clock() >= replicas.lease_until)
    ):
        return None
    return partition


def why_not_led(hosted: HostedTopic | None, index: int, replicas: ReplicaTable, *, version: int) -> ErrorCode:
    """Why `led_partition` found none."""
    if hosted is None:
        return ErrorCode.UNKNOWN_TOPIC_ID if version >= TOPIC_IDS_FROM else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if index not in hosted.partitions:
        return hosted.why_not_led(index)
    return ErrorCode.NOT_ENOUGH_REPLICAS if replicas.is_leased else ErrorCode.NOT_LEADER_OR_FOLLOWER


def appended_result(index: int, appended: Appended, partition: Partition) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time,
        log_start_offset=partition.log.start_offset,
    )


def refused_result(index: int, fault: Fault) -> PartitionProduceResponse:
    code, message, record_indexes = fault
    errors = [BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=message) for each in record_indexes]
    return PartitionProduceResponse(
        index=index, base_offset=-1, error_code=code, error_message=message, record_errors=errors
    )


class Appending:
    """Phase one of one request."""

    __slots__ = ("_acks", "_append", "_call", "_hinted", "_now_ms", "_replicas", "_request", "unacknowledged")

    def __init__(self, request: ProduceRequest, call: Call, replicas: ReplicaTable, append: Append) -> None:
        self._request = request
        self._acks = request.acks
        self._call = call
        self._replicas = replicas
        self._append = append
        self._now_ms = replicas.now_ms()
        self._hinted = False
        self.unacknowledged: list[Unacknowledged] = []

    def run(self) -> ProduceResponse:
        """The response, with `unacknowledged` telling which of its results must wait."""
        response = ProduceResponse(responses=[self._append_topic(topic) for topic in self._request.topic_data])
        if self._hinted:
            response.node_endpoints = self._endpoints(response)
        return response

    def _append_topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        if not -1 <= self._acks <= 1:
            return _all_refused(topic, ErrorCode.INVALID_REQUIRED_ACKS)
        replicas = self._replicas
        by_id = self._call.version >= TOPIC_IDS_FROM
        hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.name)
        results = [self._append_one(hosted, data) for data in topic.partition_data]
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)

    def _append_one(self, hosted: HostedTopic | None, data: PartitionProduceData) -> PartitionProduceResponse:
        index, records, acks = data.index, data.records, self._acks
        partition = led_partition(hosted, index, acks, self._replicas)
        if partition is None:
            return self._not_led(hosted, data)
        if not records:
            return _refused(data, ErrorCode.INVALID_RECORD)
        if self._call.version < ZSTD_FROM and _compression(records) == ZSTD:
            return _refused(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        try:
            appended = self._append(partition, records, self._now_ms)  # type: ignore[arg-type]
        except EXPECTED as error:
            return refused_result(index, fault_of(error, where=f"{partition.topic}-{partition.index}"))
        result = appended_result(index, appended, partition)
        if is_unacknowledged(partition, appended.last_offset, acks):
            self.unacknowledged.append(Unacknowledged(partition, appended.last_offset, result))
        return result

    def _not_led(self, hosted: HostedTopic | None, data: PartitionProduceData) -> PartitionProduceResponse:
        result = _refused(data, why_not_led(hosted, data.index, self._replicas, version=self._call.version))
        if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._hint(result, hosted)
        return result

    # -- KIP-951: who leads instead ----------------------------------------

    def _hint(self, result: PartitionProduceResponse, hosted: HostedTopic | None) -> None:
        leader, epoch = hints.leader_of(hosted, result.index)
        known = hints.endpoint_of(self._replicas.image, leader, self._call.connection.listener) is not None
        if known and leader != self._replicas.node_id:
            result.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            self._hinted = True

    def _endpoints(self, response: ProduceResponse) -> list[NodeEndpoint]:
        leaders = {each.current_leader.leader_id for topic in response.responses for each in topic.partition_responses}
        endpoints = []
        for leader in sorted(leaders - {-1}):
            found = hints.endpoint_of(self._replicas.image, leader, self._call.connection.listener)
            if found is not None:
                endpoint, rack = found
                endpoints.append(NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=rack))
        return endpoints


def _refused(data: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=data.index, base_offset=-1, error_code=code)


def _all_refused(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    results = [_refused(data, code) for data in topic.partition_data]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)


def _compression(records: Bytes) -> int:
    return records[22] & 7 if len(records) > 22 else 0
