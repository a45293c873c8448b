"""OffsetDelete: forget what a group has committed for some partitions (KIP-496).

Topics that a live member subscribes to are refused with GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from tidemark.broker.core.deferred import MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.groups.many_partitions import in_parts, is_large
from tidemark.broker.groups.offset_delete import delete_offsets
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse


@handles(OffsetDeleteRequest, OffsetDeleteResponse)
def offset_delete(
    request: OffsetDeleteRequest, _call: Call, *, groups: GroupCoordinator
) -> MaybeDeferred[OffsetDeleteResponse] | Job[MaybeDeferred[OffsetDeleteResponse]]:
    if not request.group_id:
        return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if is_large(request):
        return in_parts(request, lambda part: _delete(part, groups))
    return _delete(request, groups)


def _delete(request: OffsetDeleteRequest, groups: GroupCoordinator) -> MaybeDeferred[OffsetDeleteResponse]:
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return OffsetDeleteResponse(error_code=hosted)
    return hosted.finish(delete_offsets(hosted.shard, request))
