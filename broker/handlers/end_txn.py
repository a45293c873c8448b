"""EndTxn: commit or abort. The answer leaves when the decision is committed; the markers follow (KIP-98).

v2: PRODUCER_FENCED; before, it was INVALID_PRODUCER_EPOCH (KIP-588)
v3: flexible (KIP-482)
v4: TRANSACTION_ABORTABLE is understood (KIP-890)
v5: every transaction gets an epoch of its own, which the answer carries, or a new producer id (KIP-890)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.deferred import Answer, MaybeDeferred, awaited, mapped
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
) -> Answer[EndTxnResponse]:
    try:
        answer = _end(request, call, transactions, None)
    except NeedsProducerId:
        return _end_with_new_id(request, call, transactions, producer_ids)
    if call.version >= PRODUCER_FENCED_FROM:
        return answer
    return mapped(answer, _in_older_codes)


async def _end_with_new_id(
    request: EndTxnRequest, call: Call, transactions: TransactionCoordinator, producer_ids: ProducerIds
) -> EndTxnResponse:
    try:
        new_id = await producer_ids.next()
    except Refused:
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = await awaited(_end(request, call, transactions, new_id))
    return answer if call.version >= PRODUCER_FENCED_FROM else _in_older_codes(answer)


def _end(
    request: EndTxnRequest, call: Call, transactions: TransactionCoordinator, new_id: int | None
) -> MaybeDeferred[EndTxnResponse]:
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


def _in_older_codes(answer: EndTxnResponse) -> EndTxnResponse:
    """Older clients know only one code for a fenced producer."""
    if answer.error_code == ErrorCode.PRODUCER_FENCED:
        answer.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return answer
