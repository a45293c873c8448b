"""EndTxn: commit or abort. The answer leaves when the decision is written down; the markers follow."""

from __future__ import annotations

from typing import Any, Final

from tidemark.broker.core.deferred import awaited, mapped
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.producer_ids import ProducerIds
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction import CLASSIC, EPOCH_PER_TRANSACTION
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.broker.transactions.transitions import NeedsProducerId, Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

PRODUCER_FENCED_FROM: Final = 2  # KIP-588
EPOCH_PER_TRANSACTION_FROM: Final = 5


@handles(EndTxnRequest, EndTxnResponse)
def end_txn(
    request: EndTxnRequest, call: Call, *, transactions: TransactionCoordinator, producer_ids: ProducerIds
) -> Any:
    try:
        answer = _end(request, call, transactions, None)
    except NeedsProducerId:
        return _end_with_new_id(request, call, transactions, producer_ids)
    if call.version >= PRODUCER_FENCED_FROM:
        return answer
    return mapped(answer, _told_in_old_words)


async def _end_with_new_id(
    request: EndTxnRequest, call: Call, transactions: TransactionCoordinator, producer_ids: ProducerIds
) -> EndTxnResponse:
    try:
        new_id = await producer_ids.next()
    except Refused:
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer: EndTxnResponse = await awaited(_end(request, call, transactions, new_id))
    return answer if call.version >= PRODUCER_FENCED_FROM else _told_in_old_words(answer)


def _end(request: EndTxnRequest, call: Call, transactions: TransactionCoordinator, new_id: int | None) -> Any:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    hosted = transactions.find(request.transactional_id)
    if not isinstance(hosted, TransactionShardHost):
        return EndTxnResponse(error_code=hosted)
    return hosted.finish(
        hosted.shard.end(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=EPOCH_PER_TRANSACTION if call.version >= EPOCH_PER_TRANSACTION_FROM else CLASSIC,
            new_id=new_id,
            now_ms=transactions.now_ms(),
        )
    )


def _told_in_old_words(answer: EndTxnResponse) -> EndTxnResponse:
    """Older clients know only one word for a fenced producer."""
    if answer.error_code == ErrorCode.PRODUCER_FENCED:
        answer.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return answer
