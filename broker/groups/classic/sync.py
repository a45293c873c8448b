"""SyncGroup to a classic group: the leader sends the assignments, and every member gets its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.member import Member
from tidemark.broker.groups.classic.membership import ClassicGroupState, GroupMembership
from tidemark.broker.groups.classic.rebalance import answer_sync, start_session
from tidemark.broker.groups.group import Caller
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard


def sync(
    shard: GroupShard, group: GroupMembership, request: SyncGroupRequest, caller: Caller, now_ms: int
) -> Decision[SyncGroupResponse]:
    if code := _check(group, request):
        return SyncGroupResponse(error_code=code)
    member = group.members[request.member_id]
    if group.state is ClassicGroupState.STABLE:
        _synced(group, member)
        start_session(shard, group, member, now_ms=now_ms)
        return _share(group, member)
    if group.leader == member.member_id:
        return _assign(shard, group, member, request, now_ms)
    _synced(group, member)
    answer_sync(
        shard, member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    )  # for the request that this one replaces
    member.sync = Deferred()
    return member.sync


def _check(group: GroupMembership, request: SyncGroupRequest) -> ErrorCode:
    if code := group.check_member(request.member_id, request.group_instance_id):
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type not in (None, group.protocol_type) or request.protocol_name not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _synced(group: GroupMembership, member: Member) -> None:
    group.unsynced.discard(member.member_id)
    if not group.unsynced and group.state is ClassicGroupState.STABLE:
        group.cancel_phase()


def _assign(
    shard: GroupShard, group: GroupMembership, leader: Member, request: SyncGroupRequest, now_ms: int
) -> CoordinatorResult:
    """Members without an assignment get an empty one; assignments of unknown members are ignored."""
    assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
    answer = SyncGroupResponse(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        assignment=assignments.get(leader.member_id, b""),
    )

    def then() -> None:
        _synced(group, leader)
        start_session(shard, group, leader, now_ms=now_ms)
        for member in group.members.values():
            if member.sync is not None:
                answer_sync(shard, member, _share(group, member))
                start_session(shard, group, member, now_ms=now_ms)

    def refuse(code: ErrorCode) -> SyncGroupResponse:
        return SyncGroupResponse(error_code=code)

    return CoordinatorResult([group.record(assignments, now_ms=now_ms)], answer=answer, then=then, refuse=refuse)


def _share(group: GroupMembership, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
