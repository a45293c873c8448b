"""A classic group, as the shard and the handlers see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import Decision
from tidemark.broker.groups.classic.join import join
from tidemark.broker.groups.classic.leave import leave
from tidemark.broker.groups.classic.membership import CONSUMER, ClassicGroupState, GroupMembership
from tidemark.broker.groups.classic.rebalance import remove_and_answer, start_session
from tidemark.broker.groups.classic.sync import sync
from tidemark.broker.groups.group import Caller, Group
from tidemark.broker.groups.records import GroupMetadataKey, OffsetCommitValue
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard


class ClassicGroup(GroupMembership, Group):
    kind: ClassVar[str] = "classic"

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicGroupState.EMPTY

    # -- events ------------------------------------------------------------

    def join(
        self, shard: GroupShard, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        return join(shard, self, request, caller, now_ms)

    def sync(
        self, shard: GroupShard, request: SyncGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[SyncGroupResponse]:
        return sync(shard, self, request, caller, now_ms)

    def leave(
        self, shard: GroupShard, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[LeaveGroupResponse]:
        return leave(shard, self, request, now_ms)

    def heartbeat(self, shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        member = self.members.get(request.member_id)
        if member is None or request.group_instance_id is not None:
            refusal = self.check_member(request.member_id, request.group_instance_id)
            if refusal or member is None:
                return refusal
        if request.generation_id != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.deadline_ms = now_ms + member.session_timeout_ms
        if self.state is ClassicGroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # -- offsets -----------------------------------------------------------

    def check_commit(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        version: int,
        now_ms: int,
        transactional: bool = False,
    ) -> ErrorCode:
        if generation < 0 and self.state is ClassicGroupState.EMPTY:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns its partitions itself
        if generation < 0 and not member_id and instance_id is None:
            return ErrorCode.NONE if transactional else ErrorCode.UNKNOWN_MEMBER_ID
        refusal = self.check_member(member_id, instance_id)
        if refusal:
            return refusal
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and not transactional:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members[member_id]
        member.deadline_ms = now_ms + member.session_timeout_ms
        return ErrorCode.NONE

    def check_fetch(self, *, member_id: str | None, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def check_offset_delete(self) -> ErrorCode:
        if self.state is ClassicGroupState.EMPTY or self.protocol_type == CONSUMER:
            return ErrorCode.NONE
        return ErrorCode.NON_EMPTY_GROUP

    def subscribes_to(self, topic: str) -> bool:
        """If the subscription cannot be read: true for consumers (the safe answer), false for other protocol types."""
        return self.protocol_type == CONSUMER if self.topics is None else topic in self.topics

    def expiry_base_ms(self, value: OffsetCommitValue) -> int | None:
        if self.protocol_type is None:
            return value.commit_timestamp
        if self.state is ClassicGroupState.EMPTY:
            return value.commit_timestamp if self.state_since_ms < 0 else self.state_since_ms
        if self.state is ClassicGroupState.STABLE and self.topics is not None:
            return value.commit_timestamp
        return None

    # -- the end -----------------------------------------------------------

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    def loaded(self, shard: GroupShard, now_ms: int) -> None:
        for member in self.members.values():
            start_session(shard, self, member, now_ms=now_ms)

    def dropped(self, shard: GroupShard) -> None:
        for member in list(self.members.values()):
            remove_and_answer(shard, self, member, ErrorCode.NOT_COORDINATOR)
