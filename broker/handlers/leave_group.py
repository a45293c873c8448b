"""LeaveGroup: members go.

v3: many members, also by their instance ids (KIP-345)
v4: flexible (KIP-482)
v5: the reason (KIP-800)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.deferred import MaybeDeferred, mapped
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.groups.coordinator import GroupCoordinator
from tidemark.broker.groups.group import caller_of
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

MANY_FROM: Final = 3


@handles(LeaveGroupRequest, LeaveGroupResponse)
def leave_group(
    request: LeaveGroupRequest, call: Call, *, groups: GroupCoordinator
) -> MaybeDeferred[LeaveGroupResponse]:
    if not request.group_id:
        return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    hosted = groups.find(request.group_id)
    if not isinstance(hosted, GroupShardHost):
        return LeaveGroupResponse(error_code=hosted)
    if call.version < MANY_FROM:
        request.members = [MemberIdentity(member_id=request.member_id)]
    answer = hosted.finish(hosted.shard.leave(request, caller_of(call), groups.now_ms()))
    return answer if call.version >= MANY_FROM else mapped(answer, _of_one)


def _of_one(answer: LeaveGroupResponse) -> LeaveGroupResponse:
    """The one member's error is the answer's."""
    for member in answer.members:
        answer.error_code = answer.error_code or member.error_code
    return answer
