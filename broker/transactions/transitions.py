"""The transitions of a transaction: pure functions from one state to the next, or a refusal.

There are two sets of rules. Classic: the epoch lasts until the next InitProducerId. Transactions version 2 (KIP-890):
every EndTxn bumps the epoch, so that a late write of one transaction can never become part of the next.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemark.broker.core.errors import Refused
from tidemark.broker.transactions.transaction import (
    AT_REST,
    COMPLETED,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    NEVER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    TopicPartition,
    Transaction,
    TransactionState,
)
from tidemark.protocol.errors import ErrorCode


class Producer(NamedTuple):
    """The producer that a request names."""

    producer_id: int
    epoch: int


class NeedsProducerId(Exception):
    """The epochs of this producer id are used up: a new producer id is needed."""


def check_no_pending_transition(old: Transaction) -> None:
    """Markers of the last transaction are still being written. Tested before producer id and epoch, as Kafka does: with
    transactions version 2 the producer has been told its next epoch, and perhaps its next id, already."""
    if old.state in PREPARED:
        raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "The last transaction is still being completed.")


# -- InitProducerId --------------------------------------------------------


def initialised(
    old: Transaction, *, timeout_ms: int, expected: Producer | None, new_id: int | None, now_ms: int
) -> Transaction:
    """InitProducerId bumps the epoch, if no transaction is ongoing; an ongoing one must be fenced first (`fenced`)."""
    check_no_pending_transition(old)
    if expected is not None and not _may_continue(old, expected):
        raise Refused(ErrorCode.PRODUCER_FENCED, "Another producer with this transactional id has taken over.")
    if old.state not in AT_REST:  # under way, and not this producer's
        raise Refused(ErrorCode.PRODUCER_FENCED, f"The producer's epoch is {old.producer_epoch}.")
    fresh = old._replace(
        previous_producer_id=old.producer_id,
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=NEVER,
        update_ms=now_ms,
    )
    # The last epoch is for fencing only: a producer that may continue after it gets a new producer id.
    goes_on = expected is not None and old.producer_epoch == EPOCH_MAX and expected.epoch == old.last_producer_epoch
    if old.is_exhausted and (expected is None or expected.epoch == old.producer_epoch or goes_on):
        if new_id is None:
            raise NeedsProducerId
        last = NO_EPOCH if expected is None else expected.epoch
        return fresh._replace(producer_id=new_id, producer_epoch=0, last_producer_epoch=last)
    if expected is None:
        return fresh._replace(producer_epoch=old.producer_epoch + 1, last_producer_epoch=NO_EPOCH)
    if old.producer_epoch in (NO_EPOCH, expected.epoch):
        return fresh._replace(producer_epoch=old.producer_epoch + 1, last_producer_epoch=old.producer_epoch)
    if expected.epoch == old.last_producer_epoch:
        return fresh  # KIP-360: a retry whose first answer was lost
    raise Refused(ErrorCode.PRODUCER_FENCED, f"Epoch {expected.epoch} was followed by {old.producer_epoch}.")


def _may_continue(old: Transaction, expected: Producer) -> bool:
    """Whether this is the current producer, or one that missed our last answer."""
    return (
        old.producer_epoch == NO_EPOCH
        or expected.producer_id == old.producer_id
        or (expected.producer_id == old.previous_producer_id and expected.epoch >= EPOCH_MAX - 1)
    )


# -- AddPartitionsToTxn ----------------------------------------------------


def check_producer(old: Transaction, producer: Producer) -> None:
    if producer.producer_id != old.producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"The producer id is {old.producer_id}.")
    if producer.epoch != old.producer_epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED, f"The producer's epoch is {old.producer_epoch}.")


def with_partitions(
    old: Transaction, partitions: frozenset[TopicPartition], *, client_version: int, now_ms: int
) -> Transaction:
    """The same object if there is nothing to add."""
    if old.state is TransactionState.ONGOING and partitions <= old.partitions:
        return old
    return old._replace(
        previous_producer_id=old.producer_id,
        state=TransactionState.ONGOING,
        partitions=old.partitions | partitions,
        start_ms=old.start_ms if old.state is TransactionState.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


# -- EndTxn ----------------------------------------------------------------


def ended(
    old: Transaction, producer: Producer, *, commit: bool, version: int, new_id: int | None, now_ms: int
) -> Transaction:
    """The decision, to be stored before markers are sent; the same object if this is a retry of a completed one."""
    if version >= EPOCH_PER_TRANSACTION:
        return _ended_with_bump(old, producer, commit=commit, version=version, new_id=new_id, now_ms=now_ms)
    if producer.producer_id != old.producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"The producer id is {old.producer_id}.")
    if producer.epoch != old.producer_epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED, f"The producer's epoch is {old.producer_epoch}.")
    check_no_pending_transition(old)
    if old.state is TransactionState.ONGOING:
        return _prepared(old, commit=commit, version=version, now_ms=now_ms)
    if old.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
        return old
    raise _wrong_state(old, commit=commit)


def _ended_with_bump(
    old: Transaction, producer: Producer, *, commit: bool, version: int, new_id: int | None, now_ms: int
) -> Transaction:
    check_no_pending_transition(old)
    # Only an end by these rules has bumped the epoch: by the classic ones, the present epoch is another producer's.
    bumped = old.client_version >= EPOCH_PER_TRANSACTION
    repeats_bump = bumped and producer == (old.producer_id, old.producer_epoch - 1)
    repeats_rotation = (
        old.previous_producer_id == producer.producer_id and producer.epoch == EPOCH_MAX - 1 and old.producer_epoch == 0
    )
    if producer.producer_id != old.producer_id and not repeats_rotation:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"The producer id is {old.producer_id}.")
    is_repeated = old.state in COMPLETED and (repeats_bump or repeats_rotation)
    if not is_repeated and producer != (old.producer_id, old.producer_epoch):
        raise Refused(ErrorCode.PRODUCER_FENCED, f"The producer's epoch is {old.producer_epoch}.")
    if is_repeated:
        if old.producer_epoch == EPOCH_MAX:  # the last epoch is for fencing only
            raise Refused(ErrorCode.PRODUCER_FENCED, "The producer's epochs are used up.")
        if old.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT):
            return old
        raise _wrong_state(old, commit=commit)
    if old.state is not TransactionState.ONGOING and commit:
        raise _wrong_state(old, commit=commit)  # there is nothing to commit
    if old.is_exhausted and new_id is None:
        raise NeedsProducerId
    # An abort is allowed without an ongoing transaction: a write may be under way that would start one.
    decided = _prepared(old, commit=commit, version=version, now_ms=now_ms)
    return decided._replace(
        producer_epoch=min(old.producer_epoch + 1, EPOCH_MAX),
        last_producer_epoch=old.producer_epoch,
        next_producer_id=new_id if old.is_exhausted and new_id is not None else NO_PRODUCER_ID,
    )


def _prepared(old: Transaction, *, commit: bool, version: int, now_ms: int) -> Transaction:
    return old._replace(
        previous_producer_id=old.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        start_ms=old.start_ms if old.state is TransactionState.ONGOING else now_ms,
        update_ms=now_ms,
        client_version=version,
    )


def _wrong_state(old: Transaction, *, commit: bool) -> Refused:
    verb = "commit" if commit else "abort"
    return Refused(ErrorCode.INVALID_TXN_STATE, f"There is nothing to {verb}: the state is {old.state.label}.")


# -- by the coordinator itself ---------------------------------------------


def fenced(old: Transaction, *, now_ms: int) -> Transaction:
    """Abort an ongoing transaction with a new epoch, which fences its producer (PrepareEpochFence)."""
    assert old.state is TransactionState.ONGOING
    aborting = _prepared(old, commit=False, version=EPOCH_PER_TRANSACTION, now_ms=now_ms)
    return aborting._replace(
        producer_epoch=min(old.producer_epoch + 1, EPOCH_MAX), last_producer_epoch=old.producer_epoch
    )


def next_producer(prepared: Transaction) -> Producer:
    """The producer id and epoch after the transaction is complete."""
    if prepared.next_producer_id == NO_PRODUCER_ID:
        return Producer(prepared.producer_id, prepared.producer_epoch)
    return Producer(prepared.next_producer_id, 0)


def completed(old: Transaction, *, now_ms: int) -> Transaction:
    """All partitions have their marker."""
    assert old.state in PREPARED
    producer_id, epoch = next_producer(old)
    return old._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        previous_producer_id=old.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        state=TransactionState.COMPLETE_COMMIT
        if old.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT,
        partitions=frozenset(),
        update_ms=now_ms,
    )
