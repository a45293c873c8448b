"""A static member was restarted: it joins without a member id and replaces its previous member (KIP-345)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.groups.classic.member import Member
from tidemark.broker.groups.classic.membership import ClassicGroupState, GroupMembership
from tidemark.broker.groups.classic.rebalance import answer_waiting, join_response, prepare_or_complete, start_session
from tidemark.broker.groups.group import Caller
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard

SKIP_ASSIGNMENT_FROM: Final = 9


def replace(
    shard: GroupShard,
    group: GroupMembership,
    old: Member,
    new: Member,
    *,
    caller: Caller,
    reason: str | None,
    now_ms: int,
) -> Decision[JoinGroupResponse]:
    if group.state is ClassicGroupState.STABLE and (record := _unchanged(group, old, new, now_ms=now_ms)) is not None:
        return _carry_on(shard, group, old, new, record, caller=caller, now_ms=now_ms)
    was_leader = group.leader == old.member_id
    group.remove(old)
    answer_waiting(shard, old, ErrorCode.FENCED_INSTANCE_ID)
    deferred = new.join = Deferred()
    new.assignment = old.assignment
    group.add(new)
    if was_leader:
        group.leader = new.member_id
    start_session(shard, group, new, now_ms=now_ms)
    why = f"static member {new.instance_id} was restarted{': ' if reason else ''}{(reason or '')[:200]}"
    prepare_or_complete(shard, group, reason=why, now_ms=now_ms)
    return deferred


def _unchanged(group: GroupMembership, old: Member, new: Member, *, now_ms: int) -> CoordinatorRecord | None:
    """The same generation with the new member id in it, unless the group would now choose another protocol."""
    before = old.protocols
    group.update_protocols(old, new.protocols)
    try:
        if group.select_protocol() != group.protocol:
            return None
        assignments = {member_id: member.assignment for member_id, member in group.members.items()}
        return group.record(assignments, now_ms=now_ms, replaced={old.member_id: new})
    finally:
        group.update_protocols(old, before)


def _carry_on(
    shard: GroupShard,
    group: GroupMembership,
    old: Member,
    new: Member,
    record: CoordinatorRecord,
    *,
    caller: Caller,
    now_ms: int,
) -> CoordinatorResult:
    """No rebalance: the member keeps its assignment. Only its id changes, and the old id is fenced."""
    leads = group.leader == old.member_id
    answer = JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        # Before version 9 a leader would assign anew: to keep it from that, it is told that it does not lead.
        leader=group.leader or "",
        member_id=new.member_id,
    )

    def then() -> None:
        answer_waiting(shard, old, ErrorCode.FENCED_INSTANCE_ID)
        member = group.members[new.member_id]
        group.update_protocols(member, new.protocols)
        start_session(shard, group, member, now_ms=now_ms)
        if leads and caller.version >= SKIP_ASSIGNMENT_FROM:
            described = join_response(group, member, skip_assignment=True)
            answer.leader, answer.skip_assignment, answer.members = described.leader, True, described.members

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        return JoinGroupResponse(error_code=code)

    return CoordinatorResult([record], answer=answer, then=then, refuse=refuse)
