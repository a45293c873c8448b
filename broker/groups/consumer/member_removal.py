"""Members leave a consumer group, are removed by an administrator, or are fenced because they are silent."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.errors import Refused
from tidemark.broker.groups.consumer import migration
from tidemark.broker.groups.consumer.group_update import GroupUpdate
from tidemark.broker.groups.consumer.member import NOTHING, STATIC_LEAVE_EPOCH, Member
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.consumer.group import ConsumerGroup
    from tidemark.broker.groups.shard import GroupShard

Refuse = Callable[[ErrorCode], Any]


def fence(
    shard: GroupShard, group: ConsumerGroup, leaving: Collection[str], *, answer: Any, refuse: Refuse, now_ms: int
) -> CoordinatorResult:
    """Remove members: their partitions are free at once, and the group gets a new epoch."""
    if migration.may_downgrade(shard, group, leaving):
        return migration.downgrade(shard, group, leaving, answer=answer, refuse=refuse, now_ms=now_ms)
    update = GroupUpdate(group.state, topics=shard.image.topics, now_ms=now_ms)
    for member_id in leaving:
        update.remove_member(member_id)
    update.drop_unused_regexes()
    update.bump()
    shard.consumer_rebalances += 1

    def then() -> None:
        for member_id in leaving:
            group.deadlines.drop(member_id)
        group.reschedule(shard)

    return CoordinatorResult(update.records, answer=answer, then=then, refuse=refuse)


def leave_temporarily(group: ConsumerGroup, member: Member, *, answer: Any, refuse: Refuse) -> CoordinatorResult:
    """A static member stops for a restart: it keeps its assignment until its session times out."""
    left = replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING)
    update = GroupUpdate(group.state, topics={}, now_ms=0)
    update.put_current_assignment(left)

    def then() -> None:
        group.deadlines.revocations.pop(member.member_id, None)

    return CoordinatorResult(update.records, answer=answer, then=then, refuse=refuse)


def check_instance(group: ConsumerGroup, *, member_id: str, instance_id: str) -> Member:
    """The member with this instance id. Refuses a member id that is not the current one of the instance."""
    current = group.state.members.get(group.state.static_members.get(instance_id, ""))
    if current is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if current.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {current.member_id}.",
        )
    return current


def leave_classic(
    shard: GroupShard, group: ConsumerGroup, request: LeaveGroupRequest, now_ms: int
) -> Decision[LeaveGroupResponse]:
    """LeaveGroup removes members of either protocol: administrators' tools send it for both."""
    leaving: dict[str, None] = {}
    response = LeaveGroupResponse(members=[_leave_one(group, identity, leaving) for identity in request.members])
    if not leaving:
        return response
    return fence(
        shard,
        group,
        list(leaving),
        answer=response,
        refuse=lambda code: LeaveGroupResponse(error_code=code),
        now_ms=now_ms,
    )


def _leave_one(group: ConsumerGroup, identity: MemberIdentity, leaving: dict[str, None]) -> MemberResponse:
    answer = MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id)
    try:
        leaving[_find(group, identity)] = None
    except Refused as refusal:
        answer.error_code = refusal.code
    return answer


def _find(group: ConsumerGroup, identity: MemberIdentity) -> str:
    member_id, instance_id = identity.member_id, identity.group_instance_id
    if instance_id is not None:
        # An administrator removes a static member whatever its id is at the moment.
        named = member_id or group.state.static_members.get(instance_id, "")
        return check_instance(group, member_id=named, instance_id=instance_id).member_id
    if member_id not in group.state.members:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is not a member of group {group.group_id}.")
    return member_id
