"""APIs about producers and transactions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.security.access import Access
from tidemark.broker.security.rule import (
    CLUSTER_FAILED,
    Narrowed,
    Rule,
    Verdict,
    narrow,
    refused,
    refused_each,
    split,
    whole,
)
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidemark.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from tidemark.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidemark.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
GROUP_FAILED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
TOPIC_FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NOT_ATTEMPTED: Final = ErrorCode.OPERATION_NOT_ATTEMPTED
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
BROKERS_FROM: Final = 4  # of AddPartitionsToTxn


def init_producer_id(request: InitProducerIdRequest, access: Access, _call: Call) -> Verdict:
    """An idempotent producer needs no more than to be allowed to write somewhere (KIP-679)."""
    if request.transactional_id is not None:
        if access.transactional_id(AclOperation.WRITE, request.transactional_id):
            return None
        return InitProducerIdResponse(error_code=FAILED, producer_epoch=-1)
    if access.cluster(AclOperation.IDEMPOTENT_WRITE, quietly=True):
        return None
    if access.rights.may_somewhere(AclOperation.WRITE, ResourceType.TOPIC):
        return None
    access.cluster(AclOperation.IDEMPOTENT_WRITE)  # for the audit log
    return InitProducerIdResponse(error_code=CLUSTER_FAILED, producer_epoch=-1)


def add_partitions_to_txn(request: AddPartitionsToTxnRequest, access: Access, call: Call) -> Job[Verdict]:
    """From version 4 on it comes from brokers. A producer's is all or nothing."""
    if call.version >= BROKERS_FROM:
        if access.cluster(AclOperation.CLUSTER_ACTION):
            return None
        return (yield from refused(request, access, CLUSTER_FAILED))
    topics = request.v3_and_below_topics
    if not access.transactional_id(AclOperation.WRITE, request.v3_and_below_transactional_id):
        return (yield from _not_added({topic.name: FAILED for topic in topics}, topics))
    allowed, denied = yield from split(topics, lambda topic: access.topic(AclOperation.WRITE, topic.name))
    if not denied:
        return None
    known = access.image.topics
    codes = {topic.name: NOT_ATTEMPTED if topic.name in known else UNKNOWN for topic in allowed}
    return (yield from _not_added(codes | {topic.name: TOPIC_FAILED for topic in denied}, topics))


def _not_added(
    codes: Mapping[str, ErrorCode], topics: list[AddPartitionsToTxnTopic]
) -> Job[AddPartitionsToTxnResponse]:
    def refuse(topic: AddPartitionsToTxnTopic) -> Job[AddPartitionsToTxnTopicResult]:
        code = codes[topic.name]
        results = yield from in_slices(
            lambda index: AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code),
            topic.partitions,
        )
        return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)

    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=(yield from refused_each(refuse, topics)))


def add_offsets_to_txn(request: AddOffsetsToTxnRequest, access: Access, _call: Call) -> Verdict:
    if not access.transactional_id(AclOperation.WRITE, request.transactional_id):
        return refused(request, access, FAILED)
    if not access.group(AclOperation.READ, request.group_id):
        return refused(request, access, GROUP_FAILED)
    return None


def txn_offset_commit(request: TxnOffsetCommitRequest, access: Access, _call: Call) -> Job[Verdict]:
    if not access.transactional_id(AclOperation.WRITE, request.transactional_id):
        return TxnOffsetCommitResponse(
            topics=(yield from refused_each(partial(_uncommitted, code=FAILED), request.topics))
        )
    if not access.group(AclOperation.READ, request.group_id):
        uncommitted = partial(_uncommitted, code=GROUP_FAILED)
        return TxnOffsetCommitResponse(topics=(yield from refused_each(uncommitted, request.topics)))
    uncommitted = partial(_uncommitted, code=TOPIC_FAILED)
    return (yield from narrow(request, access, lambda topic: access.topic(AclOperation.READ, topic.name), uncommitted))


def _uncommitted(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> Job[TxnOffsetCommitResponseTopic]:
    partitions = yield from in_slices(
        lambda each: TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code),
        topic.partitions,
    )
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)


def describe_transactions(request: DescribeTransactionsRequest, access: Access, _call: Call) -> Job[Verdict]:
    allowed, denied = yield from split(
        request.transactional_ids, lambda name: access.transactional_id(AclOperation.DESCRIBE, name)
    )
    refusals = yield from in_slices(lambda name: TransactionState(transactional_id=name, error_code=FAILED), denied)
    if not allowed:
        return DescribeTransactionsResponse(transaction_states=refusals)
    request.transactional_ids = allowed

    def complete(response: DescribeTransactionsResponse) -> Job[None]:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if access.topic(AclOperation.DESCRIBE, topic.topic, quietly=True)
            ]
            yield
        response.transaction_states += refusals

    return Narrowed(request, complete)


def list_transactions(request: ListTransactionsRequest, access: Access, _call: Call) -> Verdict:
    def complete(response: ListTransactionsResponse) -> Job[None]:
        shown = []
        for state in response.transaction_states:
            if access.transactional_id(AclOperation.DESCRIBE, state.transactional_id, quietly=True):
                shown.append(state)
            yield
        response.transaction_states = shown

    return Narrowed(request, complete)


RULES: Final[Mapping[str, Rule]] = {
    "InitProducerId": init_producer_id,
    "AddPartitionsToTxn": add_partitions_to_txn,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "EndTxn": whole(
        lambda access, request: access.transactional_id(AclOperation.WRITE, request.transactional_id), FAILED
    ),
    "TxnOffsetCommit": txn_offset_commit,
    "DescribeTransactions": describe_transactions,
    "ListTransactions": list_transactions,
}
