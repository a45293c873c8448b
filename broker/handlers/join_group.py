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

from functools import partial

from tidemark.broker.core.deferred import Answer, MaybeDeferred
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.classic.join import PROTOCOLS_MAX, refusal
from tidemark.broker.groups.consumer.group import unevaluated_regexes
from tidemark.broker.groups.consumer.regex import after_evaluation
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group import Caller, caller_of
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


@handles(JoinGroupRequest, JoinGroupResponse)
def join_group(
    request: JoinGroupRequest, call: Call, *, groups: GroupCoordinator, guard: Guard | None
) -> Answer[JoinGroupResponse]:
    caller = caller_of(call, None if guard is None else guard.may_describe(call))
    config = groups.settings.current
    if not request.group_id:
        return refusal(ErrorCode.INVALID_GROUP_ID, caller, member_id=request.member_id)
    if len(request.protocols) > PROTOCOLS_MAX:
        return refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, caller, member_id=request.member_id)
    shortest_ms, longest_ms = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
    if not shortest_ms <= request.session_timeout_ms <= longest_ms:
        return refusal(ErrorCode.INVALID_SESSION_TIMEOUT, caller, member_id=request.member_id)
    hosted = groups.find(request.group_id)
    if isinstance(hosted, GroupShardHost) and (regexes := unevaluated_regexes(hosted.shard, request.group_id)):
        return after_evaluation(regexes, hosted.shard.image.topics, partial(_join, request, caller, groups))
    return _join(request, caller, groups)


def _join(request: JoinGroupRequest, caller: Caller, groups: GroupCoordinator) -> MaybeDeferred[JoinGroupResponse]:
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return refusal(hosted, caller, member_id=request.member_id)
    now_ms = groups.now_ms()
    if not groups.member_memory.admits(sum(len(each.metadata) for each in request.protocols), now_ms):
        return refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, caller, member_id=request.member_id)
    return hosted.finish(hosted.shard.join(request, caller, now_ms))
