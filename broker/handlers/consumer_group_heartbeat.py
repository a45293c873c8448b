"""ConsumerGroupHeartbeat: join, stay in and leave a group that the broker assigns (KIP-848).

v1: subscription by a regular expression; the client makes its member id itself (KIP-1082)
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.core.deferred import Answer, MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.consumer.group import unevaluated_regexes
from tidemark.broker.groups.consumer.heartbeat import consumer_heartbeat, refusal
from tidemark.broker.groups.consumer.regex import after_evaluation
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
) -> Answer[ConsumerGroupHeartbeatResponse]:
    if not request.group_id:
        return refusal(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return refusal(hosted)
    regexes = unevaluated_regexes(hosted.shard, request.group_id, request.subscribed_topic_regex)
    if regexes:
        heartbeat = partial(_heartbeat, request, call, groups, guard)
        return after_evaluation(regexes, hosted.shard.image.topics, heartbeat)
    return _heartbeat(request, call, groups, guard)


def _heartbeat(
    request: ConsumerGroupHeartbeatRequest, call: Call, groups: GroupCoordinator, guard: Guard | None
) -> MaybeDeferred[ConsumerGroupHeartbeatResponse]:
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return refusal(hosted)
    caller = caller_of(call, None if guard is None else guard.may_describe(call))
    return hosted.finish(consumer_heartbeat(hosted.shard, request, caller, groups.now_ms()))
