"""OffsetDelete: an administrator deletes offsets of topics that the group is not subscribed to."""

from __future__ import annotations

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.groups.committed_offsets import tombstone
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def delete_offsets(shard: GroupShard, request: OffsetDeleteRequest) -> OffsetDeleteResponse | CoordinatorResult:
    group = shard.groups.get(request.group_id)
    if group is None:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    if code := group.check_offset_delete():
        return OffsetDeleteResponse(error_code=code)
    response = OffsetDeleteResponse()
    records: list[CoordinatorRecord] = []
    for topic in request.topics:
        committed = shard.offsets.of_topic(request.group_id, topic.name)
        deleted = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(deleted)
        for asked in topic.partitions:
            index = asked.partition_index
            code = _check(shard, request.group_id, topic.name, index)
            deleted.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            if not code and index in committed:
                records.append(tombstone(request.group_id, topic.name, index))
    return CoordinatorResult(records, answer=response, refuse=_refuse) if records else response


def _check(shard: GroupShard, group_id: str, topic: str, index: int) -> ErrorCode:
    known = shard.image.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if shard.groups[group_id].subscribes_to(topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def _refuse(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)
