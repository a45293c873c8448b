"""LeaveGroup to a classic group: members leave by themselves, or an administrator removes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.broker.coordination.result import Decision
from tidemark.broker.groups.classic.member import Member
from tidemark.broker.groups.classic.membership import GroupMembership
from tidemark.broker.groups.classic.rebalance import complete_if_all_joined, remove_members
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard


def leave(
    shard: GroupShard, group: GroupMembership, request: LeaveGroupRequest, now_ms: int
) -> Decision[LeaveGroupResponse]:
    """LeaveGroup. Versions 0–2 name one member at the top; the handler has put it into `members`."""
    leaving: dict[str, Member] = {}
    answers = [_leave_one(group, identity, leaving) for identity in request.members]
    response = LeaveGroupResponse(members=answers)
    if leaving:
        result = remove_members(shard, group, list(leaving.values()), reason=_reason(request), now_ms=now_ms)
        if result is not None:
            result.answer = response
            result.refuse = lambda code: LeaveGroupResponse(error_code=code)
            return result
    elif group.members:
        complete_if_all_joined(
            shard, group, now_ms=now_ms
        )  # a pending member that the rebalance waited for may be gone
    return response


def nobody_left(request: LeaveGroupRequest) -> LeaveGroupResponse:
    """There is no such group. As Kafka: that is each member's error, not the answer's."""
    return LeaveGroupResponse(
        members=[
            MemberResponse(
                member_id=each.member_id,
                group_instance_id=each.group_instance_id,
                error_code=ErrorCode.UNKNOWN_MEMBER_ID,
            )
            for each in request.members
        ]
    )


def _leave_one(group: GroupMembership, identity: MemberIdentity, leaving: dict[str, Member]) -> MemberResponse:
    answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
    member_id: str | None = identity.member_id
    if not member_id:  # an administrator removes a static member, whatever its id is at the moment
        member_id = group.static_members.get(identity.group_instance_id or "")
        refusal = ErrorCode.NONE if member_id else ErrorCode.UNKNOWN_MEMBER_ID
    elif member_id in group.pending:
        group.pending.pop(member_id).cancel()
        return answer
    else:
        refusal = group.check_member(member_id, identity.group_instance_id)
    if refusal or member_id is None or member_id in leaving:
        answer.error_code = refusal or ErrorCode.UNKNOWN_MEMBER_ID
        return answer
    leaving[member_id] = group.members[member_id]
    return answer


def _reason(request: LeaveGroupRequest) -> str:
    reasons = dict.fromkeys(each.reason for each in request.members if each.reason)
    return f"members left{': ' if reasons else ''}{'; '.join(reasons)}"[:500]
