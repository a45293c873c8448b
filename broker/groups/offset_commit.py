"""OffsetCommit: who may commit, what is stored, and what each partition is told."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.metadata.image import TopicImage
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_FROM: Final = 10
GROUP_ID_NOT_FOUND_FROM: Final = 9
RECORD_VERSION: Final = 4  # of OffsetCommitValue: what Kafka 4 writes
EXPIRING_RECORD_VERSION: Final = 1  # the only one that can say when an offset expires


def commit(
    shard: GroupShard, request: OffsetCommitRequest, *, version: int, now_ms: int
) -> OffsetCommitResponse | CoordinatorResult:
    expire_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    record_version = RECORD_VERSION if expire_ms < 0 else EXPIRING_RECORD_VERSION
    metadata_max = shard.config.offset_metadata_max_bytes
    group_id = request.group_id
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse()
    refused = _check(shard, request, version=version, now_ms=now_ms)
    for topic in request.topics:
        found, missing = _topic(shard, topic, version)
        told = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(told)
        for asked in topic.partitions:
            answer = OffsetCommitResponsePartition(partition_index=asked.partition_index)
            told.partitions.append(answer)
            metadata = asked.committed_metadata or ""
            if found is None or not 0 <= asked.partition_index < len(found.partitions):
                answer.error_code = missing
                continue
            if len(metadata) > metadata_max:
                answer.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                continue
            if refused and not _holds_since(shard, request, refused, found.topic_id, asked.partition_index):
                answer.error_code = refused
                continue
            value = OffsetCommitValue(
                offset=asked.committed_offset,
                leader_epoch=asked.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=now_ms,
                expire_timestamp=expire_ms,
                topic_id=found.topic_id,
            )
            key = OffsetCommitKey(group=group_id, topic=found.name, partition=asked.partition_index)
            records.append(CoordinatorRecord(key, value, record_version))
    if not records:
        return response
    return CoordinatorResult(records, answer=response, refuse=partial(_refuse, response))


def _topic(shard: GroupShard, topic: OffsetCommitRequestTopic, version: int) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, and what to say of partitions that are not there."""
    if version >= TOPIC_IDS_FROM:
        found = shard.image.topic_by_id(topic.topic_id)
        return found, ErrorCode.UNKNOWN_TOPIC_ID if found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return shard.image.topics.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _check(shard: GroupShard, request: OffsetCommitRequest, *, version: int, now_ms: int) -> ErrorCode:
    group = shard.groups.get(request.group_id)
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return ErrorCode.NONE  # the first commit of a consumer that assigns its partitions itself
        known_error = version >= GROUP_ID_NOT_FOUND_FROM
        return ErrorCode.GROUP_ID_NOT_FOUND if known_error else ErrorCode.ILLEGAL_GENERATION
    return group.check_commit(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=generation,
        version=version,
        now_ms=now_ms,
    )


def _holds_since(
    shard: GroupShard, request: OffsetCommitRequest, refused: ErrorCode, topic_id: bytes, partition: int
) -> bool:
    """KIP-1251: a member that has moved on meanwhile may still commit what it has held on to all the time."""
    return refused is ErrorCode.STALE_MEMBER_EPOCH and shard.groups[request.group_id].holds_since(
        member_id=request.member_id,
        epoch=request.generation_id_or_member_epoch,
        topic_id=topic_id,
        partition=partition,
    )


def _refuse(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    """Nothing was committed. Partitions that are wrong in themselves keep their own error."""
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE  # it does not fit into one batch
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return response


def refuse_all(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=[_told(each, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _told(asked: OffsetCommitRequestPartition, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code)
