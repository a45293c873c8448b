"""ListTransactions and DescribeTransactions: what an administrator asks of transactional ids."""

from __future__ import annotations

from typing import Any

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.consumer.regex import compiled
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction import STATE_NAMES, Transaction, TransactionState
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from tidemark.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidemark.protocol.messages.list_transactions import TransactionState as ListedTransaction


@handles(ListTransactionsRequest, ListTransactionsResponse)
def list_transactions(
    request: ListTransactionsRequest, _call: Call, *, transactions: TransactionCoordinator
) -> ListTransactionsResponse:
    states = {STATE_NAMES[name] for name in request.state_filters if name in STATE_NAMES}
    response = ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATE_NAMES]
    )
    try:
        pattern = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except Refused as refusal:
        return ListTransactionsResponse(error_code=refusal.code)
    now_ms = transactions.now_ms()
    producer_ids = set(request.producer_id_filters)
    for hosted in transactions:
        if hosted.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for each in hosted.shard.transactions.values():
            if (
                (request.state_filters and each.state not in states)
                or (producer_ids and each.producer_id not in producer_ids)
                or (request.duration_filter >= 0 and not _runs_longer(each, request.duration_filter, now_ms))
                or (pattern is not None and not pattern.fullmatch(each.transactional_id))
            ):
                continue
            listed = ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.label,
            )
            response.transaction_states.append(listed)
    return response


def _runs_longer(transaction: Transaction, duration_ms: int, now_ms: int) -> bool:
    return transaction.start_ms >= 0 and now_ms - transaction.start_ms > duration_ms


@handles(DescribeTransactionsRequest, DescribeTransactionsResponse)
def describe_transactions(
    request: DescribeTransactionsRequest, _call: Call, *, transactions: TransactionCoordinator
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(each, transactions) for each in request.transactional_ids]
    )


def _describe(transactional_id: str, transactions: TransactionCoordinator) -> DescribedTransaction:
    answer = DescribedTransaction(transactional_id=transactional_id)
    hosted: Any = transactions.find(transactional_id) if transactional_id else ErrorCode.INVALID_REQUEST
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
