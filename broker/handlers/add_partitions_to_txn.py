"""AddPartitionsToTxn: partitions become part of a transaction (KIP-98).

Up to version 3 a producer asks for its one transaction; from version 4 on brokers ask for many, to add partitions or
only to verify that they were added. Each transaction is all or nothing: with one partition that does not exist
nothing is added, and the others get OPERATION_NOT_ATTEMPTED.

v2: PRODUCER_FENCED; before, it was INVALID_PRODUCER_EPOCH (KIP-588)
v3: flexible (KIP-482)
v4: many transactions, VerifyOnly (KIP-890)
v5: TRANSACTION_ABORTABLE is understood (KIP-890)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from tidemark.broker.core.deferred import CombinedAnswer, MaybeDeferred, mapped
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
# A producer names the offsets topic by AddOffsetsToTxn; its group's coordinator may name it here.
REFUSED_TO_BROKERS: Final = INTERNAL_TOPICS - {OFFSETS_TOPIC}

Codes = Mapping[TopicPartition, ErrorCode]


@handles(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, call: Call, *, transactions: TransactionCoordinator
) -> MaybeDeferred[AddPartitionsToTxnResponse]:
    if call.version >= BROKERS_FROM:
        return _add_to_all(request.transactions, call, transactions)
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = _add(one, transactions, client_version=CLASSIC, refused=INTERNAL_TOPICS)
    return mapped(codes, partial(_client_response, one, call))


def _add_to_all(
    asked: list[AddPartitionsToTxnTransaction], call: Call, transactions: TransactionCoordinator
) -> MaybeDeferred[AddPartitionsToTxnResponse]:
    response = AddPartitionsToTxnResponse()
    combined = CombinedAnswer(response)
    for one in asked:
        codes = _add(one, transactions, client_version=EPOCH_PER_TRANSACTION, refused=REFUSED_TO_BROKERS)
        combined.add(mapped(codes, partial(_result, one, call)), response.results_by_transaction.append)
    return combined.answer()


def _result(one: AddPartitionsToTxnTransaction, call: Call, codes: Codes | ErrorCode) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=one.transactional_id, topic_results=_topic_results(one, codes, call)
    )


def _add(
    one: AddPartitionsToTxnTransaction,
    transactions: TransactionCoordinator,
    *,
    client_version: int,
    refused: Collection[str],
) -> MaybeDeferred[Codes | ErrorCode]:
    """A code for all partitions, a code for each, or a Deferred of either."""
    if not one.transactional_id:
        return ErrorCode.INVALID_REQUEST
    partitions = frozenset((topic.name, index) for topic in one.topics for index in topic.partitions)
    if missing := {each: code for each in partitions if (code := _problem(transactions.image, each, refused))}:
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


def _problem(image: Image, partition: TopicPartition, refused: Collection[str]) -> ErrorCode | None:
    name, index = partition
    if name in refused:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return None


def _client_response(
    one: AddPartitionsToTxnTransaction, call: Call, codes: Codes | ErrorCode
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(one, codes, call))


def _topic_results(
    one: AddPartitionsToTxnTransaction, codes: Codes | ErrorCode, call: Call
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=_code_for(
                        codes if isinstance(codes, ErrorCode) else codes[topic.name, index], call.version
                    ),
                )
                for index in topic.partitions
            ],
        )
        for topic in one.topics
    ]


def _code_for(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
