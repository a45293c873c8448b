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

from tidemark.broker.core.deferred import CombinedAnswer, Deferred, MaybeDeferred, mapped
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, at_once
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
Named = Mapping[str, Collection[int]]  # partitions by topic


@handles(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, call: Call, *, transactions: TransactionCoordinator
) -> Job[MaybeDeferred[AddPartitionsToTxnResponse]]:
    if call.version >= BROKERS_FROM:
        return (yield from _add_to_all(request.transactions, call, transactions))
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    results = yield from _results(one, call, transactions, client_version=CLASSIC, refused=INTERNAL_TOPICS)
    return mapped(results, lambda found: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=found))


def _add_to_all(
    asked: list[AddPartitionsToTxnTransaction], call: Call, transactions: TransactionCoordinator
) -> Job[MaybeDeferred[AddPartitionsToTxnResponse]]:
    response = AddPartitionsToTxnResponse()
    combined = CombinedAnswer(response)
    version, refused = EPOCH_PER_TRANSACTION, REFUSED_TO_BROKERS
    for one in asked:
        yield
        results = yield from _results(one, call, transactions, client_version=version, refused=refused)
        result = mapped(results, partial(_result, one.transactional_id))
        combined.add(result, response.results_by_transaction.append)
    return combined.answer()


def _result(transactional_id: str, results: list[AddPartitionsToTxnTopicResult]) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results)


def _results(
    one: AddPartitionsToTxnTransaction,
    call: Call,
    transactions: TransactionCoordinator,
    *,
    client_version: int,
    refused: Collection[str],
) -> Job[MaybeDeferred[list[AddPartitionsToTxnTopicResult]]]:
    named = yield from _named(one)
    codes = yield from _add(one, named, transactions, client_version=client_version, refused=refused)
    if not isinstance(codes, Deferred):
        return (yield from _topic_results(named, codes, call))

    def results(found: Codes | ErrorCode) -> list[AddPartitionsToTxnTopicResult]:
        return at_once(_topic_results(named, found, call))  # all of them exist, so that they are not too many

    return mapped(codes, results)


def _named(one: AddPartitionsToTxnTransaction) -> Job[Named]:
    """Each partition once, by topic."""
    named: dict[str, dict[int, None]] = {}
    for topic in one.topics:
        yield
        indexes = named.setdefault(topic.name, {})
        for index in topic.partitions:
            indexes[index] = None
            yield
    return named


def _add(
    one: AddPartitionsToTxnTransaction,
    named: Named,
    transactions: TransactionCoordinator,
    *,
    client_version: int,
    refused: Collection[str],
) -> Job[MaybeDeferred[Codes | ErrorCode]]:
    """A code for all partitions, a code for each, or a Deferred of either."""
    if not one.transactional_id:
        return ErrorCode.INVALID_REQUEST
    codes = yield from _problems(named, transactions.image, refused)
    if any(codes.values()):
        return codes
    partitions = frozenset(codes)
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


def _problems(named: Named, image: Image, refused: Collection[str]) -> Job[dict[TopicPartition, ErrorCode]]:
    """What is wrong with each partition. If there is something with one, the others are not attempted."""
    codes: dict[TopicPartition, ErrorCode] = {}
    otherwise = ErrorCode.NONE
    for name, indexes in named.items():
        for index in indexes:
            problem = codes[name, index] = _problem(image, (name, index), refused)
            if problem:
                otherwise = ErrorCode.OPERATION_NOT_ATTEMPTED
            yield
    if otherwise:
        for partition, code in codes.items():
            codes[partition] = code or otherwise
            yield
    return codes


def _problem(image: Image, partition: TopicPartition, refused: Collection[str]) -> ErrorCode:
    name, index = partition
    if name in refused:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _topic_results(named: Named, codes: Codes | ErrorCode, call: Call) -> Job[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for name, indexes in named.items():
        of_topic = AddPartitionsToTxnTopicResult(name=name)
        results.append(of_topic)
        yield
        for index in indexes:
            code = codes if isinstance(codes, ErrorCode) else codes[name, index]
            of_topic.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=_code_for(code, call.version)
                )
            )
            yield
    return results


def _code_for(code: ErrorCode, version: int) -> ErrorCode:
    if code == ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
