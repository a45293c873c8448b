"""TxnOffsetCommit: offsets that become visible when their transaction is committed (KIP-98).

First the transaction coordinator, here or on another broker, must have the partition of the offsets in the
transaction; then the group coordinator stores them.

v2: leader epochs (KIP-320)
v3: member id, generation and instance id, to fence former members (KIP-447); flexible (KIP-482)
v4: TRANSACTION_ABORTABLE is understood (KIP-890)
v5: the partition is added to the transaction on the way, without AddOffsetsToTxn (KIP-890)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tidemark.broker.core.deferred import Answer, MaybeDeferred, awaited, chained, mapped
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import finished
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.groups.many_partitions import in_parts, is_large
from tidemark.broker.groups.txn_offset_commit import commit_in_transaction, refuse_all
from tidemark.broker.metadata.internal import OFFSETS_TOPIC
from tidemark.broker.replication.partition import Partition
from tidemark.broker.transactions.coordinator import TransactionCoordinator
from tidemark.broker.transactions.remote_participants import AddPartitions
from tidemark.broker.transactions.transitions import Producer
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

ADDS_OFFSETS_FROM: Final = 5  # KIP-890
ABORTABLE_FROM: Final = 4
LOADING_FROM: Final = 2  # older producers do not expect to hear that a coordinator is loading

_AS_THE_GROUPS: Final = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class _Asked(NamedTuple):
    """When the transaction was said to be open. It may have been ended before the answer came, and the offsets would be
    of one that nobody ends. (The log knows a late epoch, unless it has forgotten its producer.)"""

    partition: Partition
    ended_count: int

    def may_be_over(self, partition: Partition, producer_id: int) -> bool:
        if partition is not self.partition:
            return True
        return partition.ended_transactions.has_since(producer_id, self.ended_count)


@handles(TxnOffsetCommitRequest, TxnOffsetCommitResponse)
def txn_offset_commit(
    request: TxnOffsetCommitRequest, call: Call, *, groups: GroupCoordinator, transactions: TransactionCoordinator
) -> Answer[TxnOffsetCommitResponse]:
    if is_large(request):
        return _commit_many(request, call, groups, transactions)
    if not request.group_id:
        return refuse_all(request, ErrorCode.INVALID_GROUP_ID)
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return _refuse(request, call, hosted)
    asked = _Asked(hosted.partition, hosted.partition.ended_transactions.count)
    verdict = _verify(request, call, hosted.partition, transactions)
    return chained(verdict, lambda code: _commit(request, call, groups, code, asked))


async def _commit_many(
    request: TxnOffsetCommitRequest, call: Call, groups: GroupCoordinator, transactions: TransactionCoordinator
) -> TxnOffsetCommitResponse:
    """Verified once, then in parts."""
    hosted = groups.find(request.group_id) if request.group_id else ErrorCode.INVALID_GROUP_ID
    if isinstance(hosted, GroupShardHost):
        asked = _Asked(hosted.partition, hosted.partition.ended_transactions.count)
        code = await awaited(_verify(request, call, hosted.partition, transactions))
        parts = in_parts(request, lambda part: _commit(part, call, groups, code, asked))
    else:
        refusal = hosted
        parts = in_parts(request, lambda part: _refuse(part, call, refusal))
    return await awaited(await finished(parts))


def _commit(
    request: TxnOffsetCommitRequest, call: Call, groups: GroupCoordinator, verdict: ErrorCode, asked: _Asked
) -> MaybeDeferred[TxnOffsetCommitResponse]:
    if verdict:
        # A producer must not take the other coordinator's troubles for the group's: it just asks again.
        return _refuse(request, call, _AS_THE_GROUPS.get(verdict, verdict))
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return _refuse(request, call, hosted)
    if asked.may_be_over(hosted.partition, request.producer_id):
        return _refuse(request, call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # and so the next attempt asks again
    result = commit_in_transaction(hosted.shard, request, version=call.version, now_ms=groups.now_ms())
    return hosted.finish(result)


def _verify(
    request: TxnOffsetCommitRequest, call: Call, partition: Partition, transactions: TransactionCoordinator
) -> MaybeDeferred[ErrorCode]:
    """Whether the partition that holds the offsets is in the transaction."""
    producer = Producer(request.producer_id, request.producer_epoch)
    if partition.has_open_transaction(*producer):
        return ErrorCode.NONE
    adds = call.version >= ADDS_OFFSETS_FROM
    if not adds and not transactions.settings.current.transaction_partition_verification_enable:
        return ErrorCode.NONE
    where = (OFFSETS_TOPIC, partition.index)
    addition = AddPartitions(request.transactional_id, producer, frozenset((where,)), verify_only=not adds)
    return mapped(transactions.add_partitions(addition), lambda codes: codes[where])


def _refuse(request: TxnOffsetCommitRequest, call: Call, code: ErrorCode) -> TxnOffsetCommitResponse:
    if code == ErrorCode.TRANSACTION_ABORTABLE and call.version < ABORTABLE_FROM:
        code = ErrorCode.INVALID_TXN_STATE
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_FROM:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refuse_all(request, code)
