"""InitProducerId: an identity for an idempotent producer, or the next epoch of a transactional id.

Without a transactional id every request gets a new producer id (KIP-98). With one, the coordinator raises the epoch,
which fences earlier producers of the same id, and aborts what these left open before it answers.

v2: flexible (KIP-482)
v3: a producer may give its id and epoch, to go on after an error (KIP-360)
v4: PRODUCER_FENCED; before, it was INVALID_PRODUCER_EPOCH (KIP-588)
v5: TRANSACTION_ABORTABLE is understood (KIP-890)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.deferred import MaybeDeferred, awaited
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.producer_ids import ProducerIds
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.broker.transactions.transitions import NeedsProducerId, Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

PRODUCER_FENCED_FROM: Final = 4  # KIP-588


@handles(InitProducerIdRequest, InitProducerIdResponse)
async def init_producer_id(
    request: InitProducerIdRequest, call: Call, *, producer_ids: ProducerIds, transactions: TransactionCoordinator
) -> InitProducerIdResponse:
    if (request.producer_id < 0) != (request.producer_epoch < 0):
        return _refused(ErrorCode.INVALID_REQUEST)
    try:
        if request.transactional_id is None:
            return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)
        try:
            answer = _init(request, transactions, None)
        except NeedsProducerId:
            answer = _init(request, transactions, await producer_ids.next())
    except Refused:  # no controller gave us ids: the client asks again, as when a coordinator is loading
        return _refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response = await awaited(answer)
    if response.error_code == ErrorCode.PRODUCER_FENCED and call.version < PRODUCER_FENCED_FROM:
        response.error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return response


def _init(
    request: InitProducerIdRequest, transactions: TransactionCoordinator, new_id: int | None
) -> MaybeDeferred[InitProducerIdResponse]:
    if not request.transactional_id:
        return _refused(ErrorCode.INVALID_REQUEST)
    hosted = transactions.find(request.transactional_id)
    if not isinstance(hosted, TransactionShardHost):
        return _refused(hosted)
    expected = None if request.producer_id < 0 else Producer(request.producer_id, request.producer_epoch)
    return hosted.finish(
        hosted.shard.init(
            request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            expected=expected,
            new_id=new_id,
            now_ms=transactions.now_ms(),
        )
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=-1)
