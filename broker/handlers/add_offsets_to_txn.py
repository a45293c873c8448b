"""AddOffsetsToTxn: the partition that holds a group's offsets becomes part of a transaction (KIP-98).

v2: PRODUCER_FENCED; before, it was INVALID_PRODUCER_EPOCH (KIP-588)
v3: flexible (KIP-482)
v4: TRANSACTION_ABORTABLE is understood (KIP-890)
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tidemark.broker.core.deferred import Answer, MaybeDeferred, awaited, mapped
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.metadata.internal import OFFSETS_TOPIC
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.transaction_shard_host import TransactionShardHost
from tidemark.broker.transactions.transitions import Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

PRODUCER_FENCED_FROM: Final = 2  # KIP-588


@handles(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, call: Call, *, transactions: TransactionCoordinator, groups: GroupCoordinator
) -> Answer[AddOffsetsToTxnResponse]:
    if groups.partition_of(request.group_id) is None:
        return _add_to_first_group(request, call, transactions, groups)
    return mapped(_add(request, transactions, groups), lambda code: _response(code, call))


async def _add_to_first_group(
    request: AddOffsetsToTxnRequest, call: Call, transactions: TransactionCoordinator, groups: GroupCoordinator
) -> AddOffsetsToTxnResponse:
    """No client has asked for a group coordinator yet, so there is no offsets topic."""
    with suppress(Refused):
        await groups.leader_of(request.group_id)
    code = await awaited(_add(request, transactions, groups))
    return _response(code, call)


def _add(
    request: AddOffsetsToTxnRequest, transactions: TransactionCoordinator, groups: GroupCoordinator
) -> MaybeDeferred[ErrorCode]:
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    hosted = transactions.find(request.transactional_id)
    if not isinstance(hosted, TransactionShardHost):
        return hosted
    index = groups.partition_of(request.group_id)
    if index is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    producer = Producer(request.producer_id, request.producer_epoch)
    partition = frozenset(((OFFSETS_TOPIC, index),))
    return hosted.finish(hosted.shard.add(request.transactional_id, producer, partition, now_ms=transactions.now_ms()))


def _response(code: ErrorCode, call: Call) -> AddOffsetsToTxnResponse:
    if code == ErrorCode.PRODUCER_FENCED and call.version < PRODUCER_FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)
