"""SyncGroup: the leader of a classic group hands in the assignment; every member gets its part of it.

v3: group instance ids (KIP-345)
v4: flexible (KIP-482)
v5: protocol type and name, which must be there and be the group's (KIP-559)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.deferred import MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group import caller_of
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_FROM: Final = 5


@handles(SyncGroupRequest, SyncGroupResponse)
def sync_group(request: SyncGroupRequest, call: Call, *, groups: GroupCoordinator) -> MaybeDeferred[SyncGroupResponse]:
    if call.version >= PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return SyncGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    hosted = groups.find(request.group_id)
    if hosted is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # The assignment was lost with the coordinator that it was sent to: the members join again.
        return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    if not isinstance(hosted, GroupShardHost):
        return SyncGroupResponse(error_code=hosted)
    return hosted.finish(hosted.shard.sync(request, caller_of(call), groups.now_ms()))
