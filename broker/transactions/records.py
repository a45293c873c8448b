"""The records of `__transaction_state`, in Kafka's format: one key per transactional id, the newest value counts."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tidemark.broker.coordination.record import CoordinatorRecord, UnknownCoordinatorRecord, decode_record
from tidemark.broker.transactions.transaction import STATES, TopicPartition, Transaction, TransactionState
from tidemark.protocol.schema import api, array, int8, int16, int32, int64, message, string
from tidemark.protocol.schema import struct as part

VALUE_VERSION: Final = 1
CACHED_PARTITIONS_MAX: Final = 64


@message(key=0, versions="0")
class TransactionLogKey:
    transactional_id: str = string()


@part
class PartitionsSchema:
    topic: str = string()
    partition_ids: list[int] = array("int32")


@message(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", tag=0, default=-1)
    next_producer_id: int = int64("1+", tag=1, default=-1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+", default=None)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)


_TYPES: Final = {api(TransactionLogKey).key: (TransactionLogKey, TransactionLogValue)}


def _by_topic(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    """Cached where it is small, because the records of one transaction repeat its partitions."""
    return _grouped_small(partitions) if len(partitions) <= CACHED_PARTITIONS_MAX else _grouped(partitions)


def _grouped(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        by_topic.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]


_grouped_small = lru_cache(maxsize=256)(_grouped)


def record_of(transaction: Transaction) -> CoordinatorRecord:
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state.number,
        transaction_partitions=None
        if transaction.state is TransactionState.EMPTY
        else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return CoordinatorRecord(TransactionLogKey(transactional_id=transaction.transactional_id), value, VALUE_VERSION)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None)


def transaction_of(key: TransactionLogKey, value: TransactionLogValue) -> Transaction:
    state = STATES.get(value.transaction_status)
    if state is None:
        raise UnknownCoordinatorRecord(f"transaction state {value.transaction_status}")
    return Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord:
    return decode_record(_TYPES, key, value)
