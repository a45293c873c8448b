"""ConsumerGroupHeartbeat: join, stay in and leave a group that the broker assigns (KIP-848).

v1: subscription by a regular expression; the client makes its member id itself (KIP-1082)
"""

from __future__ import annotations

from tidemark.broker.core.deferred import MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.consumer.heartbeat import consumer_heartbeat, refusal
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group import caller_of
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse)
def consumer_group_heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call, *, groups: GroupCoordinator, guard: Guard | None
) -> MaybeDeferred[ConsumerGroupHeartbeatResponse]:
    if not request.group_id:
        return refusal(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return refusal(hosted)
    caller = caller_of(call, None if guard is None else guard.may_describe(call))
    return hosted.finish(consumer_heartbeat(hosted.shard, request, caller, groups.now_ms()))
