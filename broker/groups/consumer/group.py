"""A consumer group (KIP-848) as the shard sees it: its replayed state, and the deadlines of its members."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from functools import partial
from typing import Any, ClassVar, Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.groups.consumer.deadlines import MemberDeadlines, RevocationDeadline
from tidemark.broker.groups.consumer.embedded_protocol import PROTOCOL_TYPE
from tidemark.broker.groups.consumer.group_config import ConsumerGroupConfig, group_config_of
from tidemark.broker.groups.consumer.member import Member, MemberState
from tidemark.broker.groups.consumer.records import ConsumerGroupMetadataKey
from tidemark.broker.groups.consumer.regex import matching
from tidemark.broker.groups.consumer.state import KEY_TYPES, GroupState, Topics
from tidemark.broker.groups.group import Caller, Group
from tidemark.broker.groups.records import OffsetCommitValue
from tidemark.broker.groups.shard import REPLAY, GroupShard
from tidemark.broker.groups.timers import Timer
from tidemark.broker.metadata.image import GROUP_RESOURCE
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.heartbeat import HeartbeatRequest
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tidemark.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from tidemark.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

log = logging.getLogger(__name__)

RETRY_MS: Final = 1_000  # when records that a timer caused could not be written
EPOCHS_IN_COMMITS_FROM: Final = 9  # OffsetCommit, OffsetFetch


class ConsumerGroup(Group):
    kind: ClassVar[str] = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState(group_id)
        self.deadlines = MemberDeadlines()
        self.topics_seen: Topics | None = None  # the topics that the present epoch was computed with
        self.regexes_resolved_ms = 0
        self._timer: Timer | None = None
        self._group_config: tuple[BrokerConfig, Mapping[str, str], ConsumerGroupConfig] | None = None

    # -- facts about it ----------------------------------------------------

    @property
    def state_name(self) -> str:
        return self.state.name

    @property
    def protocol_type_name(self) -> str:
        return PROTOCOL_TYPE

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    def subscribes_to(self, topic: str) -> bool:
        return topic in self.state.all_subscribed_names()

    def subscribed_among(self, topics: Iterable[str]) -> Set[str]:
        return self.state.all_subscribed_names() & set(topics)

    def regexes_are_due(self, shard: GroupShard, now_ms: int) -> bool:
        """What members may describe can change though no topic does."""
        interval_ms = shard.config.group_consumer_regex_refresh_interval_ms
        return bool(self.state.regexes) and now_ms - self.regexes_resolved_ms >= interval_ms

    def tombstones(self) -> list[CoordinatorRecord]:
        return list(self.state.tombstones())

    def group_config(self, shard: GroupShard) -> ConsumerGroupConfig:
        """Cached until the broker's or the group's settings change."""
        config, overrides = shard.config, shard.image.config_of(GROUP_RESOURCE, self.group_id)
        if self._group_config is None or self._group_config[0] is not config or self._group_config[1] is not overrides:
            self._group_config = (config, overrides, group_config_of(config, overrides))
        return self._group_config[2]

    # -- clocks ------------------------------------------------------------

    def loaded(self, shard: GroupShard, now_ms: int) -> None:
        """The previous coordinator may have had heartbeats that we do not know of: all members get their full time."""
        session_timeout_ms = self.group_config(shard).session_timeout_ms
        for member in self.state.members.values():
            classic = member.classic
            own_ms = session_timeout_ms if classic is None else classic.session_timeout_ms
            self.deadlines.sessions[member.member_id] = now_ms + own_ms
            self.schedule_revocation(member, now_ms=now_ms)
        self.reschedule(shard)

    def schedule_revocation(self, member: Member, *, now_ms: int) -> None:
        """Members that speak the classic protocol have the time-outs of joining and syncing instead."""
        if member.classic is None and member.state is MemberState.UNREVOKED_PARTITIONS:
            by_ms = now_ms + max(member.rebalance_timeout_ms, 0)
            self.deadlines.revocations[member.member_id] = RevocationDeadline(member.member_epoch, by_ms)
        else:
            self.deadlines.revocations.pop(member.member_id, None)

    def reschedule(self, shard: GroupShard) -> None:
        """Set the timer to the earliest deadline. A deadline that moved later is checked when the old time comes."""
        at_ms = self.deadlines.next_ms()
        if at_ms is None or (self._timer is not None and self._timer.at_ms <= at_ms):
            return
        self.cancel_timer()
        self._timer = shard.timers.set(at_ms, partial(self._wake, shard))

    def cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self, shard: GroupShard, now_ms: int) -> CoordinatorResult | None:
        from tidemark.broker.groups.consumer.member_removal import fence

        self._timer = None
        if shard.groups.get(self.group_id) is not self:
            return None
        late = self.deadlines.overdue(self.state.members, now_ms=now_ms)
        if not late:
            self.deadlines.forget_past(now_ms=now_ms)
            self.reschedule(shard)
            return None
        for member_id, reason in late.items():
            log.info("group %s: removed %s, because %s", self.group_id, member_id, reason)
        return fence(shard, self, late, answer=None, refuse=partial(self._retry, shard, now_ms), now_ms=now_ms)

    def _retry(self, shard: GroupShard, now_ms: int, _code: ErrorCode) -> None:
        self._timer = shard.timers.set(now_ms + RETRY_MS, partial(self._wake, shard))

    def dropped(self, shard: GroupShard) -> None:
        self.cancel_timer()

    # -- the classic protocol ----------------------------------------------

    def join(
        self, shard: GroupShard, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[JoinGroupResponse]:
        from tidemark.broker.groups.consumer.classic_join import join

        return join(shard, self, request, caller, now_ms)

    def sync(
        self, shard: GroupShard, request: SyncGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[SyncGroupResponse]:
        from tidemark.broker.groups.consumer.classic_member import sync

        return sync(shard, self, request, now_ms)

    def heartbeat(self, shard: GroupShard, request: HeartbeatRequest, now_ms: int) -> ErrorCode | CoordinatorResult:
        from tidemark.broker.groups.consumer.classic_member import heartbeat

        return heartbeat(shard, self, request, now_ms)

    def leave(
        self, shard: GroupShard, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> Decision[LeaveGroupResponse]:
        from tidemark.broker.groups.consumer.member_removal import leave_classic

        return leave_classic(shard, self, request, now_ms)

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
        if generation < 0 and (self.is_empty or (transactional and not member_id)):
            return ErrorCode.NONE
        member = self.state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not transactional and version < EPOCHS_IN_COMMITS_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, generation)

    def holds_since(self, *, member_id: str, epoch: int, topic_id: bytes, partition: int) -> bool:
        """If another member had the partition in between, its assignment epoch is a later one."""
        member = self.state.members.get(member_id)
        if member is None or not 0 <= epoch <= member.member_epoch:
            return False
        for partitions_held in (member.assigned, member.pending_revocation):
            since = partitions_held.get(topic_id, {}).get(partition)
            if since is not None:
                return since <= epoch
        return False

    def check_fetch(self, *, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id or "")
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, epoch)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE  # subscribed topics are refused one by one

    def expiry_base_ms(self, value: OffsetCommitValue) -> int | None:
        return value.commit_timestamp


def _check_epoch(member: Member, epoch: int) -> ErrorCode:
    if epoch == member.member_epoch:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def find_group_config(shard: GroupShard, group_id: str) -> ConsumerGroupConfig:
    """Also for a group that does not exist yet."""
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group.group_config(shard)
    return group_config_of(shard.config, shard.image.config_of(GROUP_RESOURCE, group_id))


def _replay(shard: GroupShard, key: Any, value: Any) -> None:
    """A record creates its consumer group if need be; a tombstone without a group is ignored."""
    group = shard.groups.get(key.group_id)
    if not isinstance(group, ConsumerGroup):
        if value is None:
            return
        group = shard.groups[key.group_id] = ConsumerGroup(key.group_id)
    group.state.replay(CoordinatorRecord(key, value))
    if value is None and type(key) is ConsumerGroupMetadataKey:
        group.cancel_timer()
        del shard.groups[key.group_id]


for _key_type in KEY_TYPES:
    REPLAY[_key_type] = _replay


def unevaluated_regexes(shard: GroupShard, group_id: str, own: str | None = None) -> list[str]:
    """The regular expressions of this group, and the one of a request to it, that are not evaluated for the topics of
    now."""
    group = shard.groups.get(group_id)
    regexes = [*group.state.regexes] if isinstance(group, ConsumerGroup) else []
    if own:
        regexes.append(own)
    return matching.unknown(regexes, shard.image.topics) if regexes else regexes
