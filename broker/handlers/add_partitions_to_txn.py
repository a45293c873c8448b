"""AddPartitionsToTxn: a client's partitions become part of its transaction; or, from another broker, of several.

A request is all or nothing: with one partition that does not exist, nothing is added and the others are told so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemark.broker.core.deferred import Deferred, mapped
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.internal import INTERNAL_TOPICS, OFFSETS_TOPIC
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction import CLASSIC, EPOCH_PER_TRANSACTION, TopicPartition
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.broker.transactions.transitions import Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

PRODUCER_FENCED_FROM: Final = 2  # KIP-588
BROKERS_FROM: Final = 4

Codes = Mapping[TopicPartition, ErrorCode]


@handles(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, call: Call, *, transactions: TransactionCoordinator
) -> Any:
    if call.version >= BROKERS_FROM:
        return _Gathering(request.transactions, call, transactions).answer()
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = _add(one, transactions, client_version=CLASSIC)
    return mapped(codes, lambda late: _client_response(one, late, call))


class _Gathering:
    """The answers to many transactions, some of which may have to wait."""

    def __init__(
        self, asked: list[AddPartitionsToTxnTransaction], call: Call, transactions: TransactionCoordinator
    ) -> None:
        self._later: Deferred[AddPartitionsToTxnResponse] = Deferred()
        self._call = call
        self._response = AddPartitionsToTxnResponse()
        self._left = 0
        for one in asked:
            codes = _add(one, transactions, client_version=EPOCH_PER_TRANSACTION)
            if isinstance(codes, Deferred):
                self._left += 1
                codes.then(lambda late, one=one: self._committed(one, late))  # type: ignore[misc]
            else:
                self._take(one, codes)

    def answer(self) -> Any:
        return self._later if self._left else self._response

    def _take(self, one: AddPartitionsToTxnTransaction, codes: Codes | ErrorCode) -> None:
        self._response.results_by_transaction.append(
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id, topic_results=_results(one, codes, self._call)
            )
        )

    def _committed(self, one: AddPartitionsToTxnTransaction, codes: Codes | ErrorCode) -> None:
        self._take(one, codes)
        self._left -= 1
        if not self._left:
            self._later.resolve(self._response)


def _add(one: AddPartitionsToTxnTransaction, transactions: TransactionCoordinator, *, client_version: int) -> Any:
    """A code for all partitions, a code for each, or a Deferred of either."""
    if not one.transactional_id:
        return ErrorCode.INVALID_REQUEST
    partitions = frozenset((topic.name, index) for topic in one.topics for index in topic.partitions)
    if missing := {each: code for each in partitions if (code := _problem(transactions.image, each))}:
        return {each: missing.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED) for each in partitions}
    hosted = transactions.find(one.transactional_id)
    if not isinstance(hosted, TransactionShardHost):
        return hosted
    producer = Producer(one.producer_id, one.producer_epoch)
    if one.verify_only:
        return hosted.shard.verify(one.transactional_id, producer, partitions)
    return hosted.finish(
        hosted.shard.add(
            one.transactional_id, producer, partitions, client_version=client_version, now_ms=transactions.now_ms()
        )
    )


def _problem(image: Image, partition: TopicPartition) -> ErrorCode | None:
    name, index = partition
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if name in INTERNAL_TOPICS and name != OFFSETS_TOPIC:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return None


def _client_response(
    one: AddPartitionsToTxnTransaction, codes: Codes | ErrorCode, call: Call
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(one, codes, call))


def _results(
    one: AddPartitionsToTxnTransaction, codes: Codes | ErrorCode, call: Call
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=_told(
                        codes if isinstance(codes, ErrorCode) else codes[topic.name, index], call.version
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in one.topics
    ]


def _told(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
