"""Produce: append one batch per partition, and answer when the acknowledgement asked for is due.

Versions 0–2 are advertised, as Apache Kafka 4 does, because librdkafka takes their absence for a broker without
compression; a request that uses one of them is refused by hanging up. From version 13 topics are named by id.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from broker.connection import CloseConnection
from broker.faults import EXPECTED, Fault, fault_of
from broker.later import Later
from broker.registry import NO_ANSWER, Call, handles
from broker.replication import hints
from broker.replication.partition import Partition
from broker.replication.replicas import HostedTopic, Replicas
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.schema import Bytes

if TYPE_CHECKING:
    from broker.transactions.appends import TransactionalAppends
    from broker.transactions.service import Transactions

TOPIC_IDS_FROM = 13
ZSTD_FROM = 7
ZSTD = 4


@handles(ProduceRequest, ProduceResponse)
def produce(
    request: ProduceRequest,
    call: Call,
    transactional: TransactionalAppends | None = None,
    *,
    replicas: Replicas,
    transactions: Transactions,
) -> Any:
    if request.transactional_id is not None and transactional is None:
        return _produce_transactional(request, call, replicas, transactions)
    now_ms = replicas.now_ms()
    acks = request.acks
    by_id = call.version >= TOPIC_IDS_FROM
    response = ProduceResponse()
    due: list[tuple[Partition, int, PartitionProduceResponse]] = []
    cut_off = replicas.lease_until is not None and monotonic() >= replicas.lease_until
    for topic in request.topic_data:
        hosted = replicas.topics_by_id.get(topic.topic_id) if by_id else replicas.topics.get(topic.name)
        results = []
        for data in topic.partition_data:
            result = PartitionProduceResponse(index=data.index, base_offset=-1)
            results.append(result)
            partition = None if hosted is None else hosted.partitions.get(data.index)
            if (
                partition is None
                or not data.records
                or not -1 <= acks <= 1
                or (acks == -1 and partition.too_few_in_sync)
                or call.version < ZSTD_FROM
                or cut_off
            ):
                partition = _guard(result, partition, data, hosted, call, acks, cut_off)
                if partition is None:
                    if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                        _hint(response, result, hosted, replicas, call)
                    continue
            try:
                if transactional is None:
                    appended = partition.append(data.records, now_ms)  # type: ignore[arg-type]
                else:
                    appended = transactional.append(partition, data.records, now_ms)  # type: ignore[arg-type]
            except EXPECTED as error:
                _refuse(result, fault_of(error, where=f"{partition.topic}-{partition.index}"))
                continue
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.log_append_time
            result.log_start_offset = partition.log.start_offset
            if acks and appended.last_offset >= partition.high_watermark and (acks == -1 or partition.flush_each):
                due.append((partition, appended.last_offset, result))
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
        )
    if acks == 0:
        return _no_answer(response)
    return _Acknowledging(response, due, request).later if due else response


def _produce_transactional(request: ProduceRequest, call: Call, replicas: Replicas, transactions: Transactions) -> Any:
    """First the coordinator must know, for good, of every partition that the transaction is going to touch."""
    from broker.transactions.appends import TransactionalAppends

    appends = TransactionalAppends(request, version=call.version, replicas=replicas, transactions=transactions)
    admitted = appends.admit()
    if not isinstance(admitted, Later):
        return produce(request, call, appends, replicas=replicas, transactions=transactions)
    later: Later[Any] = Later()

    def go_on(_admitted: object) -> None:
        try:
            answer = produce(request, call, appends, replicas=replicas, transactions=transactions)
        except CloseConnection as error:
            call.connection.fail(str(error))
            return
        if isinstance(answer, Later):
            answer.then(later.resolve)
        else:
            later.resolve(answer)

    admitted.then(go_on)
    return later


def _guard(
    result: PartitionProduceResponse,
    partition: Partition | None,
    data: PartitionProduceData,
    hosted: HostedTopic | None,
    call: Call,
    acks: int,
    cut_off: bool,
) -> Partition | None:
    """The uncommon reasons not to append; the partition if there is none after all."""
    if not -1 <= acks <= 1:
        result.error_code = ErrorCode.INVALID_REQUIRED_ACKS
    elif hosted is None:
        by_id = call.version >= TOPIC_IDS_FROM
        result.error_code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif partition is None:
        result.error_code = hosted.why_not_led(data.index)
    elif cut_off:
        result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif not data.records:
        result.error_code = ErrorCode.INVALID_RECORD
    elif acks == -1 and partition.too_few_in_sync:
        result.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
    elif call.version < ZSTD_FROM and _compression(data.records) == ZSTD:
        result.error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    else:
        return partition
    return None


def _hint(
    response: ProduceResponse,
    result: PartitionProduceResponse,
    hosted: HostedTopic | None,
    replicas: Replicas,
    call: Call,
) -> None:
    leader, epoch = hints.leader_of(hosted, result.index)
    found = None if leader == replicas.node_id else hints.endpoint_of(replicas.image, leader, call.connection.listener)
    if found is None:
        return
    result.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    if all(each.node_id != leader for each in response.node_endpoints):
        endpoint, rack = found
        response.node_endpoints.append(NodeEndpoint(node_id=leader, host=endpoint.host, port=endpoint.port, rack=rack))


def _refuse(result: PartitionProduceResponse, fault: Fault) -> None:
    result.error_code, result.error_message, indexes = fault
    result.base_offset = -1
    result.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=fault.message) for index in indexes
    ]


def _compression(records: Bytes) -> int:
    return records[22] & 7 if len(records) > 22 else 0


def _no_answer(response: ProduceResponse) -> object:
    for topic in response.responses:
        for result in topic.partition_responses:
            if result.error_code:
                # With acks=0 there is no answer to carry the error: Kafka hangs up, so that the client notices.
                code = ErrorCode(result.error_code).name
                raise CloseConnection(f"a produce request with acks=0 failed: {code} {result.error_message or ''}")
    return NO_ANSWER


class _Acknowledging:
    """Waits until everything that was appended is below its high watermark (with acks=1: on our own disk), or the
    request's time is up."""

    def __init__(
        self,
        response: ProduceResponse,
        due: list[tuple[Partition, int, PartitionProduceResponse]],
        request: ProduceRequest,
    ) -> None:
        self.later: Later[ProduceResponse] = Later()
        self._response = response
        self._left = {id(result): result for _, _, result in due}
        self._timer = asyncio.get_running_loop().call_later(max(request.timeout_ms, 0) / 1000, self._time_out)
        for partition, last_offset, result in due:
            reached = partial(self._reached, result)
            if request.acks == 1:
                partition.await_flush(last_offset, reached)
            else:
                partition.await_mark(last_offset, reached, impatient=True)

    def _reached(self, result: PartitionProduceResponse, error: Exception | None) -> None:
        if self._left.pop(id(result), None) is None:
            return
        if error is not None:
            _refuse(result, fault_of(error, where="produce"))
        if not self._left:
            self._timer.cancel()
            self.later.resolve(self._response)

    def _time_out(self) -> None:
        for result in self._left.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
            result.base_offset = -1
        self._left.clear()
        self.later.resolve(self._response)
