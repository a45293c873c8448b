"""SyncGroup and Heartbeat of a member that speaks the classic protocol in a consumer group."""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.groups.consumer.embedded_protocol import PROTOCOL_TYPE
from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.consumer.member import ClassicMetadata, Member, MemberState, partitions_of
from tidemark.broker.groups.consumer.member_removal import check_instance
from tidemark.broker.groups.consumer.migration import encoded_share, read_version
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(shard: GroupShard, group: ConsumerGroup, request: SyncGroupRequest, now_ms: int) -> SyncGroupResponse:
    try:
        member, classic = _find(group, request)
        _check_protocol(classic, request)
        if group.state.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            _expect_join(shard, group, member, now_ms)
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "The group has moved on since it joined.")
    except Refused as refused:
        return SyncGroupResponse(error_code=refused.code)
    group.deadlines.syncs.pop(member.member_id, None)
    group.deadlines.sessions[member.member_id] = now_ms + classic.session_timeout_ms
    group.reschedule(shard)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encoded_share(
            partitions_of(member.assigned), shard.image.topic_names, version=read_version(classic.protocols[0][1])
        ),
    )


def heartbeat(shard: GroupShard, group: ConsumerGroup, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
    try:
        member, classic = _find(group, request)
    except Refused as refused:
        return refused.code
    group.deadlines.sessions[member.member_id] = now_ms + classic.session_timeout_ms
    group.reschedule(shard)
    if not _should_rejoin(group, member):
        return ErrorCode.NONE
    _expect_join(shard, group, member, now_ms)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _should_rejoin(group: ConsumerGroup, member: Member) -> bool:
    """There is a later epoch, or partitions to revoke, or a partition that it waited for was released."""
    if member.member_epoch < group.state.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return member.state is MemberState.UNRELEASED_PARTITIONS and not _still_waits(group, member)


def _still_waits(group: ConsumerGroup, member: Member) -> bool:
    return any(
        number not in member.assigned.get(topic_id, {}) and not group.state.is_free(topic_id, number)
        for topic_id, numbers in group.state.target_of(member.member_id).items()
        for number in numbers
    )


def _expect_join(shard: GroupShard, group: ConsumerGroup, member: Member, now_ms: int) -> None:
    """Its rebalance time-out to join again starts when it first hears of the rebalance."""
    group.deadlines.joins.setdefault(member.member_id, now_ms + member.rebalance_timeout_ms)
    group.reschedule(shard)


def _find(group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> tuple[Member, ClassicMetadata]:
    if request.group_instance_id is not None:
        member = check_instance(group, member_id=request.member_id, instance_id=request.group_instance_id)
    else:
        found = group.state.members.get(request.member_id)
        if found is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member.")
        member = found
    if member.classic is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"{member.member_id} does not use the classic protocol.")
    if request.generation_id != member.member_epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"{member.member_id} is in epoch {member.member_epoch}.")
    return member, member.classic


def _check_protocol(classic: ClassicMetadata, request: SyncGroupRequest) -> None:
    given_type, given_name = request.protocol_type, request.protocol_name
    is_other_type = given_type is not None and given_type != PROTOCOL_TYPE
    is_other_name = given_name is not None and given_name != classic.protocols[0][0]
    if is_other_type or is_other_name:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{given_type} {given_name} was not what it joined with.")
