"""JoinGroup: become a member of a classic group's next generation. The answer waits until that is complete.

v1: a rebalance timeout apart from the session timeout (KIP-62)
v4: a new member first gets an id, by MEMBER_ID_REQUIRED, and joins with it (KIP-394)
v5: group instance ids (KIP-345)
v6: flexible (KIP-482)
v7: the protocol type in the answer (KIP-559)
v8: the reason why a member joins again (KIP-800)
v9: a leader that returns may be told to leave the assignment as it is (KIP-814)
"""

from __future__ import annotations

from tidemark.broker.core.deferred import MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.classic.join import refusal
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group import caller_of
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


@handles(JoinGroupRequest, JoinGroupResponse)
def join_group(
    request: JoinGroupRequest, call: Call, *, groups: GroupCoordinator, guard: Guard | None
) -> MaybeDeferred[JoinGroupResponse]:
    caller = caller_of(call, None if guard is None else guard.may_describe(call))
    config = groups.settings.current
    if not request.group_id:
        return refusal(ErrorCode.INVALID_GROUP_ID, caller, member_id=request.member_id)
    shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        return refusal(ErrorCode.INVALID_SESSION_TIMEOUT, caller, member_id=request.member_id)
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return refusal(hosted, caller, member_id=request.member_id)
    return hosted.finish(hosted.shard.join(request, caller, groups.now_ms()))
