"""TxnOffsetCommit: offsets that take effect when their transaction commits."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.offset_records import OffsetRecords
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# Producers know generations, not member epochs.
_PRODUCER_ERRORS: Final = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}


def commit_in_transaction(
    shard: GroupShard, request: TxnOffsetCommitRequest, *, version: int, now_ms: int
) -> TxnOffsetCommitResponse | CoordinatorResult:
    if code := _check(shard, request, version=version, now_ms=now_ms):
        return refuse_all(request, code)
    offsets = OffsetRecords(shard, request.group_id, now_ms=now_ms)
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        found = shard.image.topics.get(topic.name)
        partitions = [_answer(each, offsets.add(found, each)) for each in topic.partitions]
        response.topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    if not offsets.records:
        return response
    producer = (request.producer_id, request.producer_epoch)
    return CoordinatorResult(offsets.records, answer=response, refuse=partial(refuse_all, request), producer=producer)


def _check(shard: GroupShard, request: TxnOffsetCommitRequest, *, version: int, now_ms: int) -> ErrorCode:
    """KIP-447: a member that was removed from the group must not commit."""
    group = shard.groups.get(request.group_id)
    if group is None:
        return ErrorCode.NONE if request.generation_id < 0 else ErrorCode.ILLEGAL_GENERATION
    code = group.check_commit(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        version=version,
        now_ms=now_ms,
        transactional=True,
    )
    return _PRODUCER_ERRORS.get(code, code)


def refuse_all(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(name=topic.name, partitions=[_answer(each, code) for each in topic.partitions])
            for topic in request.topics
        ]
    )


def _answer(partition: TxnOffsetCommitRequestPartition, code: ErrorCode) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
