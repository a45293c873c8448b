"""TxnOffsetCommit: offsets that wait for the end of a transaction. Who may commit them, and what is stored."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.offset_commit import RECORD_VERSION
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# What a producer makes of a group's refusal: it knows generations, not epochs of members.
_TOLD: Final = {ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION}


def commit_in_transaction(
    shard: GroupShard, request: TxnOffsetCommitRequest, *, version: int, now_ms: int
) -> TxnOffsetCommitResponse | CoordinatorResult:
    if code := _check(shard, request, version=version, now_ms=now_ms):
        return refuse_all(request, code)
    records: list[CoordinatorRecord] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        found = shard.image.topics.get(topic.name)
        told = TxnOffsetCommitResponseTopic(name=topic.name)
        response.topics.append(told)
        for asked in topic.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=asked.partition_index)
            told.partitions.append(answer)
            metadata = asked.committed_metadata or ""
            if found is None or not 0 <= asked.partition_index < len(found.partitions):
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            if len(metadata) > shard.config.offset_metadata_max_bytes:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            value = OffsetCommitValue(
                offset=asked.committed_offset,
                leader_epoch=asked.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                topic_id=found.topic_id,
            )
            key = OffsetCommitKey(group=request.group_id, topic=topic.name, partition=asked.partition_index)
            records.append(CoordinatorRecord(key, value, RECORD_VERSION))
    if not records:
        return response
    producer = (request.producer_id, request.producer_epoch)
    return CoordinatorResult(records, answer=response, refuse=partial(refuse_all, request), producer=producer)


def _check(shard: GroupShard, request: TxnOffsetCommitRequest, *, version: int, now_ms: int) -> ErrorCode:
    """KIP-447: a member that is not in the group any more must not move its offsets."""
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
    return _TOLD.get(code, code)


def refuse_all(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
