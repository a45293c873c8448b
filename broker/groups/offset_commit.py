"""OffsetCommit: which members may commit, and the error of each partition that is not committed."""

from __future__ import annotations

from functools import partial
from typing import Final

from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.offset_records import NO_EXPIRY, OffsetRecords
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


def commit(
    shard: GroupShard, request: OffsetCommitRequest, *, version: int, now_ms: int
) -> OffsetCommitResponse | CoordinatorResult:
    expire_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else NO_EXPIRY
    offsets = OffsetRecords(shard, request.group_id, now_ms=now_ms, expire_ms=expire_ms)
    response = OffsetCommitResponse()
    refused = _check(shard, request, version=version, now_ms=now_ms)
    for topic in request.topics:
        found, missing = _topic(shard, topic, version)
        answers = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answers)
        for each in topic.partitions:
            code = refused and _refusal(shard, request, refused, found, each.partition_index)
            code = offsets.add(found, each, missing=missing, refused=code)
            answers.partitions.append(_answer(each, code))
    if not offsets.records:
        return response
    return CoordinatorResult(offsets.records, answer=response, refuse=partial(_refuse, response))


def _topic(shard: GroupShard, topic: OffsetCommitRequestTopic, version: int) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, and the error code of partitions that do not exist."""
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


def _refusal(
    shard: GroupShard, request: OffsetCommitRequest, refused: ErrorCode, topic: TopicImage | None, partition: int
) -> ErrorCode:
    """KIP-1251: a member whose epoch has moved on may still commit for partitions that it has held ever since."""
    if topic is None or refused is not ErrorCode.STALE_MEMBER_EPOCH:
        return refused
    holds_since = shard.groups[request.group_id].holds_since(
        member_id=request.member_id,
        epoch=request.generation_id_or_member_epoch,
        topic_id=topic.topic_id,
        partition=partition,
    )
    return ErrorCode.NONE if holds_since else refused


def _refuse(response: OffsetCommitResponse, code: ErrorCode) -> OffsetCommitResponse:
    """The records could not be written. Partitions that were refused before keep their own error."""
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE  # the records do not fit into one batch
    for topic in response.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return response


def refuse_all(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=[_answer(each, code) for each in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(partition: OffsetCommitRequestPartition, code: ErrorCode) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
