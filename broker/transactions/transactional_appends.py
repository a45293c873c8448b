"""Transactional writes: no batch is appended before its partition is part of the transaction.

Without that a batch that arrives late, when its transaction is over, would open one that never ends (KIP-890).
From Produce version 12 on a write adds the partition to the transaction; before, the client must have added it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.broker.core.deferred import Deferred, mapped
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.internal import INTERNAL_TOPICS
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.remote_participants import AddPartitions
from tidemark.broker.transactions.transaction import TopicPartition
from tidemark.broker.transactions.transitions import Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import ProduceRequest
from tidemark.protocol.records import HEADER_SIZE, BatchHeader, check_batch, read_header
from tidemark.storage import Appended, InvalidTransactionState, OutOfOrderSequence, PendingAppend

TOPIC_IDS_FROM: Final = 13
ADDS_PARTITIONS_FROM: Final = 12
ABORTABLE_FROM: Final = 11
PARTITIONS_PER_STEP: Final = 64  # between two looks at the clock, in a request for very many

RETRIED: Final = ErrorCode.NOT_ENOUGH_REPLICAS  # what a producer sends again, of the codes below

# The coordinator's errors, as producers expect them in a Produce response.
_PRODUCE_CODES: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: RETRIED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: RETRIED,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: RETRIED,
    ErrorCode.NOT_COORDINATOR: RETRIED,
}

Codes = Mapping[TopicPartition, ErrorCode]


class TransactionalAppends:
    """The writes of one request."""

    def __init__(
        self, request: ProduceRequest, *, version: int, replicas: ReplicaTable, transactions: TransactionCoordinator
    ) -> None:
        self._request = request
        self._version = version
        self._replicas = replicas
        self._transactions = transactions
        self._codes: Codes = {}
        self._ended: dict[Partition, int] = {}  # how many transactions had been ended there when this came

    def add_partitions(self) -> Job[Deferred[None] | None]:
        """Add (or verify) all partitions that have no open transaction of this producer, with one request."""
        producer, partitions = yield from self._unopened()
        if producer is None:
            return None
        return mapped(self._ask(producer, partitions), self._keep_codes)

    def append(self, partition: Partition, records: memoryview, now_ms: int, at_once: bool = True) -> Appended:
        header = check_batch(records)
        if not header.is_transactional or header.is_control:
            return partition.append(records, now_ms, at_once)
        code = self._codes.get((partition.topic, partition.index), ErrorCode.NONE)
        if code:
            if code == RETRIED:
                partition.note_refused(header, code)
            raise Refused(code, "The transaction coordinator does not count this partition in.")
        records, header = partition.validated_transactional(records, header, now_ms, at_once)
        self._check_transaction(partition, header)
        return partition.append_checked(records, header, now_ms)

    def begin_append(
        self, partition: Partition, records: memoryview, header: BatchHeader, now_ms: int
    ) -> Appended | PendingAppend:
        """As `append`, for a batch that waited: what depends on those before it can be said now."""
        self._check_transaction(partition, header)
        return partition.begin_append(records, header, now_ms)

    def _check_transaction(self, partition: Partition, header: BatchHeader) -> None:
        if not header.is_transactional:
            return
        ended = self._ended.get(partition)
        if ended is None:  # nor was it added to the transaction
            partition.note_refused(header, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leadership is another than when this came.")
        has_ended = partition.ended_transactions.has_since(header.producer_id, ended)
        if self._version >= ADDS_PARTITIONS_FROM:
            _check_unknown(partition, header, has_ended=has_ended)
        elif has_ended:
            raise InvalidTransactionState(f"the transaction of producer {header.producer_id} has been ended meanwhile")

    def _unopened(self) -> Job[tuple[Producer | None, frozenset[TopicPartition]]]:
        by_id = self._version >= TOPIC_IDS_FROM
        producers = set()
        unopened = set()
        for topic in self._request.topic_data:
            host = self._replicas.topics_by_id.get(topic.topic_id) if by_id else self._replicas.topics.get(topic.name)
            for count, data in enumerate(topic.partition_data):
                if count % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                    yield
                partition = None if host is None else host.partitions.get(data.index)
                if partition is None or data.records is None or len(data.records) < HEADER_SIZE:
                    continue
                if partition.topic in INTERNAL_TOPICS:
                    continue  # the append is refused: it must not be part of the transaction
                header = read_header(data.records)
                if not header.is_transactional:
                    continue
                producers.add(Producer(header.producer_id, header.producer_epoch))
                self._ended[partition] = partition.ended_transactions.count
                if not partition.has_open_transaction(header.producer_id, header.producer_epoch):
                    unopened.add((partition.topic, data.index))
        if len(producers) > 1:
            mixed = ErrorCode.INVALID_PRODUCER_ID_MAPPING  # one transactional id is one producer
            self._codes = dict.fromkeys(unopened, mixed)
            return None, frozenset()
        return (next(iter(producers)) if unopened else None), frozenset(unopened)

    def _ask(self, producer: Producer, partitions: frozenset[TopicPartition]) -> Codes | Deferred[Codes]:
        """A code for each partition, or a Deferred of that."""
        transactional_id = self._request.transactional_id or ""
        adds = self._version >= ADDS_PARTITIONS_FROM
        if not adds and not self._transactions.settings.current.transaction_partition_verification_enable:
            return {}
        return self._transactions.add_partitions(
            AddPartitions(transactional_id, producer, partitions, verify_only=not adds)
        )

    def _keep_codes(self, codes: Codes) -> None:
        translated = _PRODUCE_CODES if self._version >= ABORTABLE_FROM else _PRODUCE_CODES_BEFORE_ABORTABLE
        self._codes = {each: translated.get(code, code) for each, code in codes.items()}


_PRODUCE_CODES_BEFORE_ABORTABLE: Final = {
    **_PRODUCE_CODES,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorCode.INVALID_TXN_STATE,
}


def _check_unknown(partition: Partition, header: BatchHeader, *, has_ended: bool) -> None:
    """Every transaction has a new epoch, so an unknown producer must begin at sequence 0; else a batch was lost, or was
    refused a moment ago and comes again. And nothing here says that its epoch is an old one: if a transaction of it may
    have ended since the coordinator was asked, it is asked again, with the next attempt."""
    if partition.log.producer(header.producer_id) is not None:
        return
    if header.base_sequence > 0:
        partition.check_first(header)
        raise OutOfOrderSequence(
            f"producer {header.producer_id} began at sequence {header.base_sequence}; a transaction begins at 0"
        )
    if has_ended:
        partition.note_refused(header, RETRIED)
        raise Refused(RETRIED, "A transaction of this producer may have ended meanwhile.")
