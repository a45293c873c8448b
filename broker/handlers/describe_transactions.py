"""DescribeTransactions: the state, the producer and the partitions of transactional ids (KIP-664).

Each id has an error of its own: NOT_COORDINATOR where another broker coordinates it, TRANSACTIONAL_ID_NOT_FOUND where
nothing is known of it, INVALID_REQUEST for an empty one. There is one version.
"""

from __future__ import annotations

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction import TransactionState
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from tidemark.protocol.messages.describe_transactions import TransactionState as DescribedTransaction


@handles(DescribeTransactionsRequest, DescribeTransactionsResponse)
def describe_transactions(
    request: DescribeTransactionsRequest, _call: Call, *, transactions: TransactionCoordinator
) -> Job[DescribeTransactionsResponse]:
    described = yield from in_slices(lambda each: _describe(each, transactions), request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=described)


def _describe(transactional_id: str, transactions: TransactionCoordinator) -> DescribedTransaction:
    answer = DescribedTransaction(transactional_id=transactional_id)
    hosted = transactions.find(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
    if not isinstance(hosted, TransactionShardHost):
        answer.error_code = hosted
        return answer
    found = hosted.shard.transactions.get(transactional_id)
    if found is None or found.state is TransactionState.DEAD:
        answer.error_code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return answer
    by_topic: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        by_topic.setdefault(topic, []).append(index)
    answer.producer_id = found.producer_id
    answer.producer_epoch = found.producer_epoch
    answer.transaction_state = found.state.label
    answer.transaction_timeout_ms = found.timeout_ms
    answer.transaction_start_time_ms = found.start_ms
    answer.topics = [TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()]
    return answer
