"""Produce: append one batch per partition, and answer when the acknowledgement asked for is due.

Versions 0–2 are advertised, as Apache Kafka 4 does, because librdkafka takes their absence for a broker without
compression; a request that uses one of them is refused by hanging up. From version 13 topics are named by id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import EXPECTED, CloseConnection, fault_of
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.handlers.produce.acks import Acknowledging, no_answer, refuse
from tidemark.broker.handlers.produce.fast_path import produce_one
from tidemark.broker.replication import hints
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidemark.protocol.schema import Bytes

if TYPE_CHECKING:
    from tidemark.broker.transactions.coordinator import TransactionCoordinator
    from tidemark.broker.transactions.transactional_appends import TransactionalAppends

TOPIC_IDS_FROM = 13
ZSTD_FROM = 7
ZSTD = 4


@handles(ProduceRequest, ProduceResponse, quick=produce_one)
def produce(
    request: ProduceRequest,
    call: Call,
    transactional: TransactionalAppends | None = None,
    *,
    replicas: ReplicaTable,
    transactions: TransactionCoordinator,
) -> Any:
    if request.transactional_id is not None and transactional is None:
        return _produce_transactional(request, call, replicas, transactions)
    now_ms = replicas.now_ms()
    acks = request.acks
    by_id = call.version >= TOPIC_IDS_FROM
    topics = []
    due: list[tuple[Partition, int, PartitionProduceResponse]] = []
    hinted = False
    cut_off = replicas.lease_until is not None and lease_clock() >= replicas.lease_until
    for topic in request.topic_data:
        hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.name)
        results = []
        for data in topic.partition_data:
            partition = None if hosted is None else hosted.partitions.get(data.index)
            if (
                partition is None
                or not data.records
                or not -1 <= acks <= 1
                or (acks == -1 and partition.too_few_in_sync)
                or call.version < ZSTD_FROM
                or cut_off
            ):
                if code := _guard(partition, data, hosted, call, acks, cut_off):
                    result = PartitionProduceResponse(index=data.index, base_offset=-1, error_code=code)
                    if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        hinted |= _hint(result, hosted, replicas, call)
                    results.append(result)
                    continue
                assert partition is not None
            try:
                if transactional is None:
                    appended = partition.append(data.records, now_ms)  # type: ignore[arg-type]
                else:
                    appended = transactional.append(partition, data.records, now_ms)  # type: ignore[arg-type]
            except EXPECTED as error:
                result = PartitionProduceResponse(index=data.index)
                refuse(result, fault_of(error, where=f"{partition.topic}-{partition.index}"))
                results.append(result)
                continue
            result = PartitionProduceResponse(
                index=data.index,
                base_offset=appended.base_offset,
                log_append_time_ms=appended.log_append_time,
                log_start_offset=partition.log.start_offset,
            )
            results.append(result)
            if acks and appended.last_offset >= partition.high_watermark and (acks == -1 or partition.flush_each):
                due.append((partition, appended.last_offset, result))
        topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
    response = ProduceResponse(responses=topics)
    if hinted:
        response.node_endpoints = _endpoints(response, replicas, call)
    if acks == 0:
        return no_answer(response)
    return Acknowledging(response, due, acks=acks, timeout_ms=request.timeout_ms).later if due else response


def _produce_transactional(
    request: ProduceRequest, call: Call, replicas: ReplicaTable, transactions: TransactionCoordinator
) -> Any:
    """First the coordinator must know, for good, of every partition that the transaction is going to touch."""
    from tidemark.broker.transactions.transactional_appends import TransactionalAppends

    appends = TransactionalAppends(request, version=call.version, replicas=replicas, transactions=transactions)
    admitted = appends.add_partitions()
    if not isinstance(admitted, Deferred):
        return produce(request, call, appends, replicas=replicas, transactions=transactions)
    later: Deferred[Any] = Deferred()

    def go_on(_admitted: object) -> None:
        try:
            answer = produce(request, call, appends, replicas=replicas, transactions=transactions)
        except CloseConnection as error:
            call.connection.fail(str(error))
            return
        if isinstance(answer, Deferred):
            answer.then(later.resolve)
        else:
            later.resolve(answer)

    admitted.then(go_on)
    return later


def _guard(
    partition: Partition | None,
    data: PartitionProduceData,
    hosted: HostedTopic | None,
    call: Call,
    acks: int,
    cut_off: bool,
) -> ErrorCode:
    """The uncommon reasons not to append; NONE if it is none of them after all."""
    if not -1 <= acks <= 1:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if hosted is None:
        by_id = call.version >= TOPIC_IDS_FROM
        return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition is None:
        return hosted.why_not_led(data.index)
    if cut_off:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if not data.records:
        return ErrorCode.INVALID_RECORD
    if acks == -1 and partition.too_few_in_sync:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if call.version < ZSTD_FROM and _compression(data.records) == ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE


def _hint(result: PartitionProduceResponse, hosted: HostedTopic | None, replicas: ReplicaTable, call: Call) -> bool:
    """KIP-951: who leads it, if that is known and another."""
    leader, epoch = hints.leader_of(hosted, result.index)
    known = hints.endpoint_of(replicas.image, leader, call.connection.listener) is not None
    if not known or leader == replicas.node_id:
        return False
    result.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return True


def _endpoints(response: ProduceResponse, replicas: ReplicaTable, call: Call) -> list[NodeEndpoint]:
    leaders = {each.current_leader.leader_id for topic in response.responses for each in topic.partition_responses}
    endpoints = []
    for leader in sorted(leaders - {-1}):
        found = hints.endpoint_of(replicas.image, leader, call.connection.listener)
        if found is not None:
            endpoint, rack = found
            endpoints.append(NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=rack))
    return endpoints


def _compression(records: Bytes) -> int:
    return records[22] & 7 if len(records) > 22 else 0
