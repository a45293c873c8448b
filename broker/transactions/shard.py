"""The transactions of one partition of `__transaction_state`: a state machine without clock, socket or file.

Events get the time as an argument and return their answer, or a CoordinatorResult whose record must be written
first. Markers of decided transactions are put into `markers_to_send`: they may be sent once the decision is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import Refused
from tidemark.broker.transactions.records import (
    TransactionLogKey,
    TransactionLogValue,
    record_of,
    tombstone,
    transaction_of,
)
from tidemark.broker.transactions.transaction import (
    AT_REST,
    CLASSIC,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
)
from tidemark.broker.transactions.transitions import (
    NeedsProducerId,
    Producer,
    check_no_pending_transition,
    check_producer,
    completed,
    ended,
    fenced,
    initialised,
    next_producer,
    with_partitions,
)
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.end_txn import EndTxnResponse
from tidemark.protocol.messages.init_producer_id import InitProducerIdResponse
from tidemark.protocol.records import EndTransaction

log = logging.getLogger(__name__)


class PendingMarkers(NamedTuple):
    """The markers of a decided transaction, to be written by the leaders of its partitions."""

    transactional_id: str
    marker: EndTransaction
    version: int  # transaction version of the client
    partitions: frozenset[TopicPartition]


class TransactionShard:
    def __init__(self, *, config: BrokerConfig, coordinator_epoch: int) -> None:
        self.config = config  # replaced by the host when settings change
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, Transaction] = {}
        self.markers_to_send: list[PendingMarkers] = []
        self.committed = self.aborted = 0  # transactions that ended here
        self.replies: list[tuple[Deferred[Any], Any]] = []  # unused: no request waits for another one here
        self._unmarked: dict[
            str, set[TopicPartition]
        ] = {}  # by transactional id: partitions of a decided transaction without a marker

    # -- requests ----------------------------------------------------------

    def init(
        self, transactional_id: str, *, timeout_ms: int, expected: Producer | None, new_id: int | None, now_ms: int
    ) -> InitProducerIdResponse | CoordinatorResult:
        """Raises NeedsProducerId if a new producer id is needed."""
        if not 0 < timeout_ms <= self.config.transaction_max_timeout_ms:
            return _init_refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        old = self.transactions.get(transactional_id)
        try:
            if old is None:
                old = _unknown(transactional_id, timeout_ms=timeout_ms, new_id=new_id)
            elif old.state is TransactionState.ONGOING and expected in (None, (old.producer_id, old.producer_epoch)):
                # The client retries, and gets the next epoch once the transaction is aborted.
                busy = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_epoch=-1)
                return self._transition_to(fenced(old, now_ms=now_ms), answer=busy, refuse=_init_refusal)
            new = initialised(old, timeout_ms=timeout_ms, expected=expected, new_id=new_id, now_ms=now_ms)
        except Refused as refusal:
            return _init_refusal(refusal.code)
        granted = InitProducerIdResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch)
        return self._transition_to(new, answer=granted, refuse=_init_refusal)

    def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        *,
        client_version: int = CLASSIC,
        now_ms: int,
    ) -> ErrorCode | CoordinatorResult:
        try:
            old = self._find(transactional_id)
            check_no_pending_transition(old)
            check_producer(old, producer)
        except Refused as refusal:
            return refusal.code
        new = with_partitions(old, partitions, client_version=client_version, now_ms=now_ms)
        return (
            ErrorCode.NONE if new is old else self._transition_to(new, answer=ErrorCode.NONE, refuse=lambda code: code)
        )

    def verify(
        self, transactional_id: str, producer: Producer, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """KIP-890: whether these partitions are in the ongoing transaction."""
        try:
            old = self._find(transactional_id)
            check_producer(old, producer)
            check_no_pending_transition(old)
        except Refused as refusal:
            return dict.fromkeys(partitions, refusal.code)
        return {
            each: ErrorCode.NONE if each in old.partitions else ErrorCode.TRANSACTION_ABORTABLE for each in partitions
        }

    def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, version: int, new_id: int | None, now_ms: int
    ) -> EndTxnResponse | CoordinatorResult:
        """Raises NeedsProducerId if a new producer id is needed."""
        try:
            old = self._find(transactional_id)
            new = ended(old, producer, commit=commit, version=version, new_id=new_id, now_ms=now_ms)
        except Refused as refusal:
            return _end_refusal(refusal.code)
        if new is old:
            return EndTxnResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch)
        producer_id, epoch = next_producer(new)
        granted = EndTxnResponse(producer_id=producer_id, producer_epoch=epoch)
        return self._transition_to(new, answer=granted, refuse=_end_refusal)

    def _find(self, transactional_id: str) -> Transaction:
        found = self.transactions.get(transactional_id)
        if found is None:
            raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "The transactional id is not known.")
        return found

    # -- markers -----------------------------------------------------------

    def marked(
        self, pending: PendingMarkers, partition: TopicPartition | None, now_ms: int
    ) -> CoordinatorResult | None:
        """A marker is committed (None: the transaction has no partitions). The last one completes the transaction."""
        transaction = self.transactions.get(pending.transactional_id)
        unmarked = self._unmarked.get(pending.transactional_id)
        if transaction is None or unmarked is None or pending.marker != self._marker(transaction):
            return None  # of an earlier transaction
        if partition is not None:
            unmarked.discard(partition)
        return None if unmarked else self._complete(transaction, now_ms)

    def unmarked(self) -> Iterator[PendingMarkers]:
        """Decided transactions with markers that are still missing."""
        for transactional_id, partitions in self._unmarked.items():
            transaction = self.transactions[transactional_id]
            yield self._pending_markers(transaction)._replace(partitions=frozenset(partitions))

    def _complete(self, transaction: Transaction, now_ms: int) -> CoordinatorResult:
        is_commit = transaction.state is TransactionState.PREPARE_COMMIT
        self.committed += is_commit
        self.aborted += not is_commit
        return self._transition_to(completed(transaction, now_ms=now_ms), answer=None, refuse=lambda _: None)

    def _pending_markers(self, transaction: Transaction) -> PendingMarkers:
        return PendingMarkers(
            transaction.transactional_id, self._marker(transaction), transaction.client_version, transaction.partitions
        )

    def _marker(self, transaction: Transaction) -> EndTransaction:
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        return EndTransaction(transaction.producer_id, transaction.producer_epoch, commit, self.coordinator_epoch)

    # -- time --------------------------------------------------------------

    def time_out(self, now_ms: int) -> Iterator[CoordinatorResult | None]:
        """Abort transactions whose time-out is over, and fence their producers. Where there is None, and only there,
        requests may be handled before it goes on."""
        for old in self._each():
            if old is None:
                yield None
            elif old.state is TransactionState.ONGOING and now_ms > old.start_ms + old.timeout_ms:
                log.info("the transaction of %s has timed out and is aborted", old.transactional_id)
                yield self._transition_to(fenced(old, now_ms=now_ms), answer=None, refuse=lambda _: None)

    def expire(self, now_ms: int) -> Iterator[CoordinatorResult | None]:
        """transactional.id.expiration.ms: delete transactional ids that are no longer used. None as in `time_out`."""
        limit_ms = self.config.transactional_id_expiration_ms
        for old in self._each():
            if old is None:
                yield None
            elif old.state in AT_REST and now_ms - old.update_ms >= limit_ms:
                yield CoordinatorResult([tombstone(old.transactional_id)], refuse=lambda _: None)

    def _each(self) -> Iterator[Transaction | None]:
        """Every transaction as it is when its turn comes, and None behind it."""
        for transactional_id in list(self.transactions):
            transaction = self.transactions.get(transactional_id)
            if transaction is not None:
                yield transaction
            yield None

    # -- the log -----------------------------------------------------------

    def _transition_to(self, new: Transaction, *, answer: Any, refuse: Callable[[ErrorCode], Any]) -> CoordinatorResult:
        return CoordinatorResult([record_of(new)], answer=answer, then=partial(self._follow_up, new), refuse=refuse)

    def apply(self, result: CoordinatorResult) -> object:
        """The records are in the log: apply them. Returns the answer."""
        if result.then is not None:
            result.then()  # same as a replay, plus the fields that are not stored
        else:
            for record in result.records:
                self.replay(record)
        return result.answer

    def replay(self, record: CoordinatorRecord) -> None:
        key: TransactionLogKey = record.key
        value: TransactionLogValue | None = record.value
        if value is None:
            self.transactions.pop(key.transactional_id, None)
        else:
            self.transactions[key.transactional_id] = transaction_of(key, value)

    def _follow_up(self, new: Transaction) -> None:
        self.transactions[new.transactional_id] = new
        if new.state in PREPARED:
            self._unmarked[new.transactional_id] = set(new.partitions)
            self.markers_to_send.append(self._pending_markers(new))
        else:
            self._unmarked.pop(new.transactional_id, None)

    def loaded(self, now_ms: int) -> Iterator[CoordinatorResult]:
        """The whole log is replayed and the shard is active: send the markers of decided transactions."""
        for transaction in list(self.transactions.values()):
            if transaction.state in PREPARED:
                self._unmarked[transaction.transactional_id] = set(transaction.partitions)
                self.markers_to_send.append(self._pending_markers(transaction))
        return iter(())


def _unknown(transactional_id: str, *, timeout_ms: int, new_id: int | None) -> Transaction:
    if new_id is None:
        raise NeedsProducerId
    return Transaction(transactional_id=transactional_id, producer_id=new_id, timeout_ms=timeout_ms)


def _init_refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)


def _end_refusal(code: ErrorCode) -> EndTxnResponse:
    return EndTxnResponse(error_code=code)
