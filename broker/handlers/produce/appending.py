"""Phase one of a produce request: which batches may be appended, and in which order.

What is appended here keeps its offset. Whether and when that is acknowledged is phase two (`acks`).
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from tidemark.broker.core.deferred import Deferred, MaybeDeferred
from tidemark.broker.core.errors import EXPECTED, Fault, fault_of
from tidemark.broker.core.lease import lease_clock
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.handlers.produce.acks import Unacknowledged, is_unacknowledged
from tidemark.broker.replication import hints
from tidemark.broker.replication.examination import AT_ONCE_RECORDS_MAX, Examination, MustWait
from tidemark.broker.replication.hosted_topic import HostedTopic
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.replication.writers import PIECE_BYTES
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
from tidemark.protocol.records import HEADER_SIZE, BatchHeader, read_header
from tidemark.protocol.schema import Bytes, fields_of
from tidemark.storage import Appended, PendingAppend

log = logging.getLogger(__name__)

TOPIC_IDS_FROM: Final = 13
ZSTD_FROM: Final = 7
PARTITIONS_PER_STEP: Final = 64  # between two looks at the clock

RESULT_FIELDS: Final = tuple(fields_of(PartitionProduceResponse))


class Appender(Protocol):
    """How a batch is appended: plainly, or as part of a transaction."""

    def append(self, partition: Partition, records: memoryview, now_ms: int, at_once: bool, /) -> Appended:
        """Raises MustWait unless it can be done now."""
        ...

    def begin_append(
        self, partition: Partition, records: memoryview, header: BatchHeader, now_ms: int, /
    ) -> Appended | PendingAppend:
        """For a batch whose turn it is. See `Partition.begin_append`."""
        ...


class PlainAppends:
    """Batches of no transaction."""

    @staticmethod
    def append(partition: Partition, records: memoryview, now_ms: int, at_once: bool) -> Appended:
        return partition.append(records, now_ms, at_once)

    @staticmethod
    def begin_append(
        partition: Partition, records: memoryview, header: BatchHeader, now_ms: int
    ) -> Appended | PendingAppend:
        return partition.begin_append(records, header, now_ms)


class BackgroundAppends:
    """Batches of no transaction, behind Kafka's clients: copying a large one into the page cache is more than one step
    of that where the system has to find memory for each page (100 KB took 0.3 ms)."""

    @staticmethod
    def append(partition: Partition, records: memoryview, now_ms: int, at_once: bool) -> Appended:
        return partition.append(records, now_ms, at_once, at_once_bytes_max=PIECE_BYTES)

    @staticmethod
    def begin_append(
        partition: Partition, records: memoryview, header: BatchHeader, now_ms: int
    ) -> Appended | PendingAppend:
        return partition.begin_append(records, header, now_ms, at_once_bytes_max=PIECE_BYTES)


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

    __slots__ = (
        "_acks",
        "_appender",
        "_call",
        "_deferred",
        "_hinted",
        "_left",
        "_now_ms",
        "_records_at_once",
        "_replicas",
        "_request",
        "_response",
        "_waiting_bytes",
        "unacknowledged",
    )

    def __init__(self, request: ProduceRequest, call: Call, replicas: ReplicaTable, appender: Appender) -> None:
        self._request = request
        self._acks = request.acks
        self._call = call
        self._replicas = replicas
        self._appender = appender
        self._now_ms = replicas.now_ms()
        self._hinted = False
        self._left = 0  # batches that wait for their turn
        self._response: ProduceResponse | None = None  # when all its batches are appended, or wait for their turn
        self._records_at_once = AT_ONCE_RECORDS_MAX
        self.unacknowledged: list[Unacknowledged] = []

    def run(self) -> MaybeDeferred[ProduceResponse]:
        """The response, with `unacknowledged` telling which of its results must wait."""
        return self._appended([self._append_topic(topic) for topic in self._request.topic_data])

    def run_in_slices(self) -> Job[MaybeDeferred[ProduceResponse]]:
        """As `run`, for very many partitions: other requests have their turn in between."""
        topics = []
        for topic in self._request.topic_data:
            results: list[PartitionProduceResponse] = []
            for start in range(0, len(topic.partition_data), PARTITIONS_PER_STEP):
                results += self._append_all(topic, topic.partition_data[start : start + PARTITIONS_PER_STEP])
                yield
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results))
            yield
        return self._appended(topics)

    def _appended(self, topics: list[TopicProduceResponse]) -> MaybeDeferred[ProduceResponse]:
        response = ProduceResponse(responses=topics)
        if self._left:
            self._response = response
            self._deferred: Deferred[ProduceResponse] = Deferred()
            return self._deferred
        if self._hinted:
            response.node_endpoints = self._endpoints(response)
        return response

    def _append_topic(self, topic: TopicProduceData) -> TopicProduceResponse:
        results = self._append_all(topic, topic.partition_data)
        return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)

    def _append_all(
        self, topic: TopicProduceData, partitions: list[PartitionProduceData]
    ) -> list[PartitionProduceResponse]:
        if not -1 <= self._acks <= 1:
            return [_refused(data, ErrorCode.INVALID_REQUIRED_ACKS) for data in partitions]
        hosted = self._hosted(topic)
        return [self._append_one(topic, hosted, data) for data in partitions]

    def _hosted(self, topic: TopicProduceData) -> HostedTopic | None:
        if self._call.version >= TOPIC_IDS_FROM:
            return self._replicas.topics_by_id.get(topic.topic_id)
        return self._replicas.topics.get(topic.name)

    def _append_one(
        self, topic: TopicProduceData, hosted: HostedTopic | None, data: PartitionProduceData
    ) -> PartitionProduceResponse:
        index, records = data.index, data.records
        partition = led_partition(hosted, index, self._acks, self._replicas)
        if partition is None:
            return self._not_led(hosted, data)
        if not records:
            return _refused(data, ErrorCode.INVALID_RECORD)
        if self._call.version < ZSTD_FROM and _compression(records) == ZSTD:
            return _refused(data, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        at_once = not partition.rules.examines_all or self._may_examine(records)
        try:
            appended = self._appender.append(partition, records, self._now_ms, at_once)  # type: ignore[arg-type]
        except MustWait as wait:
            return self._queued(topic, partition, data, wait.examination)
        except EXPECTED as error:
            return refused_result(index, fault_of(error, where=f"{partition.topic}-{partition.index}"))
        result = appended_result(index, appended, partition)
        if is_unacknowledged(partition, appended.last_offset, self._acks):
            self.unacknowledged.append(Unacknowledged(partition, appended.last_offset, result))
        return result

    def _may_examine(self, records: Bytes) -> bool:
        """Whether this batch's records are few enough to be looked at now, with those of the batches before it."""
        count = int.from_bytes(records[57:61], "big", signed=True)
        if 0 < count <= AT_ONCE_RECORDS_MAX:  # else it waits, or is refused, anyway
            self._records_at_once -= count
        return self._records_at_once >= 0

    # -- batches that wait for their turn ----------------------------------

    def _queued(
        self, topic: TopicProduceData, partition: Partition, data: PartitionProduceData, examination: Examination
    ) -> PartitionProduceResponse:
        """A result that is filled in later."""
        result = PartitionProduceResponse(index=data.index)
        connection = self._call.connection
        if not self._left:
            self._waiting_bytes = len(data.records.obj)  # type: ignore[union-attr, arg-type]  # the whole request
            connection.count_waiting(self._waiting_bytes)
        self._left += 1
        turn = QueuedBatch(self, topic, partition, data, examination, result)
        self._replicas.append_queues.join(partition, examination, turn, client=connection)
        return result

    def begin_turn(self, batch: QueuedBatch) -> Appended | PendingAppend | PartitionProduceResponse:
        partition, data = batch.partition, batch.data
        refused = self._no_longer_led(batch)  # much may have happened since it came
        if refused is not None:
            return refused
        try:
            records, header = batch.examination.outcome()
            return self._appender.begin_append(partition, records, header, self._replicas.now_ms())
        except EXPECTED as error:
            return refused_result(data.index, fault_of(error, where=f"{partition.topic}-{partition.index}"))

    def finish_turn(self, batch: QueuedBatch, pending: PendingAppend) -> Appended | PartitionProduceResponse:
        """It is written; but whether that counts is decided by what has happened meanwhile."""
        partition, data = batch.partition, batch.data
        outcome: Appended | PartitionProduceResponse
        try:
            outcome = partition.finish_append(pending)
        except EXPECTED as error:
            outcome = refused_result(data.index, fault_of(error, where=f"{partition.topic}-{partition.index}"))
        refused = self._no_longer_led(batch)
        if refused is not None and refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
            refused.error_code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return refused or outcome

    def refused_turn(self, batch: QueuedBatch) -> PartitionProduceResponse:
        """Of a leadership that is over."""
        return self._no_longer_led(batch) or _refused(batch.data, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_turn(self, batch: QueuedBatch, outcome: Appended | PartitionProduceResponse) -> None:
        partition, result = batch.partition, batch.result
        if isinstance(outcome, Appended):
            if is_unacknowledged(partition, outcome.last_offset, self._acks):
                self.unacknowledged.append(Unacknowledged(partition, outcome.last_offset, result))
            outcome = appended_result(result.index, outcome, partition)
        for name in RESULT_FIELDS:
            setattr(result, name, getattr(outcome, name))
        self._left -= 1
        if self._left:
            return
        self._call.connection.release_waiting(self._waiting_bytes)
        response = self._response
        if response is None:
            return  # the rest of the request is still being appended, in slices
        if self._hinted:
            response.node_endpoints = self._endpoints(response)
        self._deferred.resolve(response)

    def _no_longer_led(self, batch: QueuedBatch) -> PartitionProduceResponse | None:
        hosted = self._hosted(batch.topic)
        leads = led_partition(hosted, batch.data.index, self._acks, self._replicas)
        if leads is None:
            return self._not_led(hosted, batch.data)
        if leads is not batch.partition:  # again: another leadership, another log
            self._note_unwritten(hosted, batch.data, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return _refused(batch.data, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return None

    def _not_led(self, hosted: HostedTopic | None, data: PartitionProduceData) -> PartitionProduceResponse:
        code = why_not_led(hosted, data.index, self._replicas, version=self._call.version)
        self._note_unwritten(hosted, data, code)
        result = _refused(data, code)
        if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._hint(result, hosted)
        return result

    def _note_unwritten(self, hosted: HostedTopic | None, data: PartitionProduceData, code: ErrorCode) -> None:
        """What the producer has sent behind this batch may come when this node leads again: it is to hear the same."""
        index, records = data.index, data.records
        if hosted is None or not 0 <= index < len(hosted.image.partitions) or not records or len(records) < HEADER_SIZE:
            return
        if self._replicas.node_id in hosted.image.partitions[index].replicas:
            hosted.unwritten_of(index).add(read_header(records), code)

    # -- KIP-951: the new leader -------------------------------------------

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


class QueuedBatch:
    """One batch of a request, from when it must wait until its result is known (see `append_queues`)."""

    __slots__ = ("_appending", "data", "examination", "partition", "result", "topic")

    def __init__(
        self,
        appending: Appending,
        topic: TopicProduceData,
        partition: Partition,
        data: PartitionProduceData,
        examination: Examination,
        result: PartitionProduceResponse,
    ) -> None:
        self._appending = appending
        self.topic = topic
        self.partition = partition
        self.data = data
        self.examination = examination
        self.result = result  # filled in when it is known

    def begin(self) -> PendingAppend | None:
        try:
            outcome = self._appending.begin_turn(self)
        except Exception:
            outcome = self._failed()
        if isinstance(outcome, PendingAppend):
            return outcome
        self._appending.end_turn(self, outcome)
        return None

    def finish(self, pending: PendingAppend) -> None:
        try:
            outcome = self._appending.finish_turn(self, pending)
        except Exception:
            outcome = self._failed()
        self._appending.end_turn(self, outcome)

    def refuse(self) -> None:
        try:
            outcome = self._appending.refused_turn(self)
        except Exception:
            outcome = self._failed()
        self._appending.end_turn(self, outcome)

    @property
    def header(self) -> BatchHeader:
        return read_header(self.data.records)  # type: ignore[arg-type]  # it was checked when it came

    def _failed(self) -> PartitionProduceResponse:
        log.exception("%s-%d: a batch that waited was not appended", self.partition.topic, self.partition.index)
        return _refused(self.data, ErrorCode.UNKNOWN_SERVER_ERROR)


def _refused(data: PartitionProduceData, code: ErrorCode) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=data.index, base_offset=-1, error_code=code)


def _compression(records: Bytes) -> int:
    return records[22] & 7 if len(records) > 22 else 0
