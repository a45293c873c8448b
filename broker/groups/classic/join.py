"""JoinGroup to a classic group: new members, returning ones, and static ones that were restarted.

Version 4 asks new members to come back with the id they are given (KIP-394), version 5 brings static members (KIP-345),
version 8 a reason (KIP-800), version 9 lets a static leader that was restarted skip the assignment (KIP-814).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from tidemark.broker.coordination.result import Decision
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic import static_member
from tidemark.broker.groups.classic.member import Member, Protocols
from tidemark.broker.groups.classic.membership import ClassicGroupState, GroupMembership
from tidemark.broker.groups.classic.rebalance import (
    NEW_MEMBER_JOIN_MS,
    answer_join,
    complete_if_all_joined,
    join_response,
    prepare_or_complete,
    schedule_session_check,
    start_session,
)
from tidemark.broker.groups.group import Caller
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard

log = logging.getLogger(__name__)

MEMBER_ID_REQUIRED_FROM: Final = 4
NULL_PROTOCOL_FROM: Final = 7
PROTOCOLS_MAX: Final = 1_000  # of a member: an assignor each, of which clients have a handful


def join(
    shard: GroupShard, group: GroupMembership, request: JoinGroupRequest, caller: Caller, now_ms: int
) -> Decision[JoinGroupResponse]:
    protocols = [(each.name, bytes(each.metadata)) for each in request.protocols]
    if not _has_room(shard, group, request.member_id):
        if timer := group.pending.pop(request.member_id, None):
            timer.cancel()
        return refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, caller)
    if not group.supports(request.protocol_type, [name for name, _ in protocols]):
        return refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, caller, member_id=request.member_id)
    if request.member_id:
        return _join_known(shard, group, request, protocols, caller, now_ms)
    return _join_unknown(shard, group, request, protocols, caller, now_ms)


def refusal(code: ErrorCode, caller: Caller, *, member_id: str = "") -> JoinGroupResponse:
    name = None if caller.version >= NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=name)


def _has_room(shard: GroupShard, group: GroupMembership, member_id: str) -> bool:
    limit = shard.config.group_max_size
    if group.state is ClassicGroupState.EMPTY:
        return True
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        member = group.members.get(member_id)
        return (member is not None and member.join is not None) or group.joining < limit
    return member_id in group.members or len(group.members) < limit


def _join_unknown(
    shard: GroupShard,
    group: GroupMembership,
    request: JoinGroupRequest,
    protocols: Protocols,
    caller: Caller,
    now_ms: int,
) -> Decision[JoinGroupResponse]:
    instance_id = request.group_instance_id
    member_id = shard.new_member_id(caller.client_id if instance_id is None else instance_id)
    if instance_id is not None:
        member = new_member(request, protocols, caller, member_id=member_id)
        previous = group.members.get(group.static_members.get(instance_id, ""))
        if previous is not None:
            return static_member.replace(
                shard, group, previous, member, caller=caller, reason=request.reason, now_ms=now_ms
            )
        return _add(shard, group, request, member, now_ms)
    if caller.version >= MEMBER_ID_REQUIRED_FROM:
        _await_return(shard, group, member_id, session_timeout_ms=request.session_timeout_ms, now_ms=now_ms)
        return refusal(ErrorCode.MEMBER_ID_REQUIRED, caller, member_id=member_id)
    return _add(shard, group, request, new_member(request, protocols, caller, member_id=member_id), now_ms)


def _await_return(
    shard: GroupShard, group: GroupMembership, member_id: str, *, session_timeout_ms: int, now_ms: int
) -> None:
    """A client that never received its member id must not hold up the group for ever."""

    def forget(at_ms: int) -> None:
        timer = group.pending.pop(member_id, None)
        if timer is None:
            return
        timer.cancel()
        if group.members:
            complete_if_all_joined(shard, group, now_ms=at_ms)
        else:
            shard.drop_if_unused(group.group_id)

    timer = group.pending[member_id] = shard.timers.set(now_ms + session_timeout_ms, forget)
    shard.expected_members.add(forget, id_length=len(member_id) + len(group.group_id), now_ms=now_ms, timer=timer)


def _join_known(
    shard: GroupShard,
    group: GroupMembership,
    request: JoinGroupRequest,
    protocols: Protocols,
    caller: Caller,
    now_ms: int,
) -> Decision[JoinGroupResponse]:
    member_id, instance_id = request.member_id, request.group_instance_id
    if member_id in group.pending and instance_id is None:
        group.pending.pop(member_id).cancel()
        return _add(shard, group, request, new_member(request, protocols, caller, member_id=member_id), now_ms)
    if code := group.check_member(member_id, instance_id):
        return refusal(code, caller, member_id=member_id)
    member = group.members[member_id]
    if _must_rebalance(group, member, protocols):
        return _update(shard, group, member, request, protocols, now_ms)
    # A retry, or a restarted client that kept its member id: it gets the present generation again.
    start_session(shard, group, member, now_ms=now_ms)
    return join_response(group, member)


def _must_rebalance(group: GroupMembership, member: Member, protocols: Protocols) -> bool:
    if group.state is ClassicGroupState.PREPARING_REBALANCE or member.protocols != protocols:
        return True
    # A stable group's leader joins again when it saw a change that the members' metadata does not show.
    return group.state is ClassicGroupState.STABLE and group.leader == member.member_id


def new_member(request: JoinGroupRequest, protocols: Protocols, caller: Caller, *, member_id: str) -> Member:
    return Member(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.host,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols,
    )


def rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    """Version 0 had none: the session's served as both."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def _add(
    shard: GroupShard, group: GroupMembership, request: JoinGroupRequest, member: Member, now_ms: int
) -> Decision[JoinGroupResponse]:
    if group.state is ClassicGroupState.EMPTY:
        group.protocol_type = request.protocol_type
    elif group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY:
        group.new_member_added = True
    deferred = member.join = Deferred()
    member.is_new = True
    group.add(member)
    schedule_session_check(shard, group, member, deadline_ms=now_ms + NEW_MEMBER_JOIN_MS)
    reason = _reason(request, f"{member.member_id} joined")
    prepare_or_complete(shard, group, reason=reason, now_ms=now_ms)
    return deferred


def _update(
    shard: GroupShard,
    group: GroupMembership,
    member: Member,
    request: JoinGroupRequest,
    protocols: Protocols,
    now_ms: int,
) -> Decision[JoinGroupResponse]:
    # An earlier request of this member that still waits came over a connection that it has given up.
    answer_join(shard, group, member, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    group.update_protocols(member, protocols)
    member.rebalance_timeout_ms = rebalance_timeout_ms(request)
    member.session_timeout_ms = request.session_timeout_ms
    deferred = member.join = Deferred()
    group.joining += 1
    prepare_or_complete(shard, group, reason=_reason(request, f"{member.member_id} joined again"), now_ms=now_ms)
    return deferred


def _reason(request: JoinGroupRequest, what: str) -> str:
    return f"{what}: {request.reason[:200]}" if request.reason else what
