"""ListTransactions: the transactional ids that this broker coordinates (KIP-664).

A tool asks every broker and adds up. The answer lists states of the filter that do not exist. While one of our shards
is still loading the answer is COORDINATOR_LOAD_IN_PROGRESS.

v1: filter by how long a transaction has run (KIP-994)
v2: filter by a pattern of the transactional id (KIP-1152)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.groups.consumer.regex import compiled
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction import STATE_NAMES, Transaction
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidemark.protocol.messages.list_transactions import TransactionState as ListedTransaction

MATCHED_CHARACTERS_MAX: Final = 1_000  # of an id: an expression made for it takes a second for 32,000


@handles(ListTransactionsRequest, ListTransactionsResponse)
def list_transactions(
    request: ListTransactionsRequest, _call: Call, *, transactions: TransactionCoordinator
) -> Job[ListTransactionsResponse]:
    response = ListTransactionsResponse()
    states = set()
    for name in request.state_filters:
        if name in STATE_NAMES:
            states.add(STATE_NAMES[name])
        else:
            response.unknown_state_filters.append(name)
        yield
    try:
        pattern = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except Refused as refusal:
        return ListTransactionsResponse(error_code=refusal.code)
    now_ms = transactions.now_ms()
    producer_ids = set(request.producer_id_filters)
    for hosted in transactions:
        if hosted.is_loading:
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for each in list(hosted.shard.transactions.values()):
            yield
            if (
                (request.state_filters and each.state not in states)
                or (producer_ids and each.producer_id not in producer_ids)
                or (request.duration_filter >= 0 and not _runs_longer(each, request.duration_filter, now_ms))
                or (pattern is not None and not pattern.fullmatch(each.transactional_id[:MATCHED_CHARACTERS_MAX]))
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
