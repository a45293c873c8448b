"""ConsumerGroupHeartbeat: join, stay in, and leave a group that the broker assigns.

A heartbeat creates or updates its member, computes a new target assignment if something changed, and reconciles the
member one step with its target. Most heartbeats need none of that and take the short path (`_nothing_new`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.errors import Refused
from tidemark.broker.groups.consumer import migration
from tidemark.broker.groups.consumer.group import ConsumerGroup, find_group_config
from tidemark.broker.groups.consumer.group_config import ConsumerGroupConfig
from tidemark.broker.groups.consumer.group_update import GroupUpdate
from tidemark.broker.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    AssignedPartitions,
    Member,
    MemberState,
    partitions_of,
)
from tidemark.broker.groups.consumer.member_removal import check_instance, fence, leave_temporarily
from tidemark.broker.groups.consumer.reconciliation import Owned
from tidemark.broker.groups.consumer.regex import compiled
from tidemark.broker.groups.group import Caller
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from tidemark.broker.groups.shard import GroupShard

CLIENT_MEMBER_IDS_FROM = 1  # KIP-1082: the client makes its own id


def consumer_heartbeat(
    shard: GroupShard, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> Decision[ConsumerGroupHeartbeatResponse]:
    """Returns the response, or a CoordinatorResult."""
    group = shard.groups.get(request.group_id)
    if isinstance(group, ConsumerGroup) and (answer := _nothing_new(shard, group, request, caller, now_ms)) is not None:
        return answer
    group_config = find_group_config(shard, request.group_id)
    try:
        _check(request, caller.version, group_config)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return _leave(shard, request, now_ms)
        return _FullHeartbeat(shard, request, caller, group_config, now_ms).decide()
    except Refused as refused:
        return refusal(refused.code, refused.message)


def refusal(code: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def _nothing_new(
    shard: GroupShard, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
) -> ConsumerGroupHeartbeatResponse | None:
    """The answer to a reconciled member that reports no change; None if the full path is needed."""
    state = group.state
    member = state.members.get(request.member_id)
    if (
        member is None
        or request.member_epoch != member.member_epoch
        or request.member_epoch <= JOIN_EPOCH
        or request.subscribed_topic_names is not None
        or request.topic_partitions is not None
        or request.subscribed_topic_regex is not None
        or request.rebalance_timeout_ms != -1
        or request.server_assignor not in (None, member.server_assignor)
        or request.rack_id not in (None, member.rack_id)
        or request.instance_id not in (None, member.instance_id)  # librdkafka sends it only when it joins
        or member.classic is not None
        or member.state is not MemberState.STABLE
        or member.member_epoch != state.assignment_epoch
        or state.epoch != state.assignment_epoch
        or group.topics_seen is not shard.image.topics
        or (caller.may_describe is not None and group.regexes_are_due(shard, now_ms))
        or member.client_id != caller.client_id
        or member.client_host != caller.host
    ):
        return None
    group_config = group.group_config(shard)
    group.deadlines.sessions[member.member_id] = now_ms + group_config.session_timeout_ms
    return ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=group_config.interval_ms(unchanged_ms=now_ms - state.assignment_timestamp, waits=False),
    )


# -- what is wrong with a request ------------------------------------------


def _check(request: ConsumerGroupHeartbeatRequest, version: int, group_config: ConsumerGroupConfig) -> None:
    epoch = request.member_epoch
    if version >= CLIENT_MEMBER_IDS_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _require(bool(request.member_id.strip()), "MemberId can't be empty.")
    _require(bool(request.group_id.strip()), "GroupId can't be empty.")
    _require(request.instance_id is None or bool(request.instance_id.strip()), "InstanceId can't be empty.")
    _require(request.rack_id is None or bool(request.rack_id.strip()), "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
        _require(
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )
    elif epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    else:
        _require(epoch > STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in group_config.assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(group_config.assignors)}.",
        )


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Refused(ErrorCode.INVALID_REQUEST, otherwise)


# -- leaving ---------------------------------------------------------------


def _leave(shard: GroupShard, request: ConsumerGroupHeartbeatRequest, now_ms: int) -> CoordinatorResult:
    group = shard.groups.get(request.group_id)
    if not isinstance(group, ConsumerGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
    answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is not None:
        member = check_instance(group, member_id=request.member_id, instance_id=request.instance_id)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            return leave_temporarily(group, member, answer=answer, refuse=refusal)
    elif request.member_id not in group.state.members:
        raise _unknown(request.member_id, group.group_id)
    return fence(shard, group, [request.member_id], answer=answer, refuse=refusal, now_ms=now_ms)


def _unknown(member_id: str, group_id: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


# -- joining and staying ---------------------------------------------------


class _FullHeartbeat:
    """A heartbeat on the full path."""

    def __init__(
        self,
        shard: GroupShard,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        group_config: ConsumerGroupConfig,
        now_ms: int,
    ) -> None:
        self.shard = shard
        self.request = request
        self.caller = caller
        self.group_config = group_config
        self.now_ms = now_ms
        self.topics = shard.image.topics
        self.member_id = request.member_id or shard.new_member_id("")
        self.checked = False  # whether the present epoch was computed with these topics
        self.regexes_are_due = False
        self.has_resolved = False  # regular expressions
        self.is_upgrade = False
        self.replaced: str | None = None  # the member id of the static member that this one replaces
        self.then: list[Callable[[], None]] = []

    def decide(self) -> Decision[ConsumerGroupHeartbeatResponse]:
        request = self.request
        update = self.update = self._open()
        self._check_room()
        before = self._find()
        is_repeat = before is not None and self._is_repeat(before)
        before = before or Member(member_id=self.member_id)
        after = self._updated(before)
        names_changed = after.subscribed_topic_names != before.subscribed_topic_names
        regex_changed = (after.subscribed_topic_regex or "") != (before.subscribed_topic_regex or "")
        if regex_changed and after.subscribed_topic_regex:
            compiled(after.subscribed_topic_regex)  # refuse it before anything else
        if after != before or self.member_id not in update.state.members:
            update.put_member(after)
        self._renew_group(names_changed=names_changed, regex_changed=regex_changed)
        if not is_repeat:
            owned = _owned(request)
            update.step(self.member_id, owned=owned, subscription_changed=names_changed or regex_changed)
        return self._finish(before)

    def _open(self) -> GroupUpdate:
        """An update of the existing group, of a new one, or of the one that a classic group is converted to."""
        request = self.request
        group = self.shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            self.checked = group.topics_seen is self.topics
            self.regexes_are_due = self.caller.may_describe is not None and group.regexes_are_due(
                self.shard, self.now_ms
            )
            return GroupUpdate(group.state, topics=self.topics, now_ms=self.now_ms)
        if request.member_epoch != JOIN_EPOCH:
            raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {request.group_id} not found.")
        self.checked, self.is_upgrade = False, group is not None
        upgrade = migration.upgrade(self.shard, group, request.group_id, topics=self.topics, now_ms=self.now_ms)
        if upgrade.then is not None:
            self.then.append(upgrade.then)
        return upgrade.update

    def _check_room(self) -> None:
        members = self.update.state.members
        if len(members) >= self.group_config.members_max and self.member_id not in members:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.group_config.members_max} members.",
            )

    def _find(self) -> Member | None:
        """The member as it is now; None if it is to be created."""
        request, state = self.request, self.update.state
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = state.members.get(self.member_id)
            if member is None and not joins:
                raise _unknown(self.member_id, state.group_id)
        elif joins:
            return self._find_instance(request.instance_id)
        else:
            member = self._check_instance(request.instance_id)
        if member is not None and not joins:
            _check_epoch(member, request)
        return member

    def _check_instance(self, instance_id: str) -> Member:
        group = self.shard.groups[self.request.group_id]
        assert isinstance(group, ConsumerGroup)  # _open refused anything else
        return check_instance(group, member_id=self.member_id, instance_id=instance_id)

    def _find_instance(self, instance_id: str) -> Member | None:
        """A static member joins. Its predecessor must have left, or have used the classic protocol."""
        state = self.update.state
        current = state.members.get(state.static_members.get(instance_id, ""))
        if current is None:
            return state.members.get(self.member_id)
        if current.member_id == self.member_id and current.member_epoch != STATIC_LEAVE_EPOCH:
            return current  # a retry
        if current.classic is None and current.member_epoch != STATIC_LEAVE_EPOCH:
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {self.member_id} with instance id {instance_id} cannot join the group because the "
                f"instance id is owned by {current.member_id} member.",
            )
        self.replaced = current.member_id
        return self.update.replace_member(current, member_id=self.member_id)

    def _is_repeat(self, member: Member) -> bool:
        """Whether our last answer got lost: the member still has its previous epoch.

        It gets the same answer again and is not reconciled: this may also be an old request that arrives late, and
        then the partitions that it lists are outdated.
        """
        received = self.request.member_epoch
        return received == member.previous_member_epoch != member.member_epoch and self.replaced is None

    def _updated(self, member: Member) -> Member:
        """Null in a request means unchanged."""
        request = self.request
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        return replace(
            member,
            instance_id=member.instance_id if request.instance_id is None else request.instance_id,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout_ms=_given(request.rebalance_timeout_ms, member.rebalance_timeout_ms),
            server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
            subscribed_topic_names=member.subscribed_topic_names if names is None else frozenset(names),
            subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex,
            client_id=self.caller.client_id,
            client_host=self.caller.host,
            classic=None,
        )

    def _renew_group(self, *, names_changed: bool, regex_changed: bool) -> None:
        update = self.update
        state = update.state
        named_others = False
        if regex_changed or (state.regexes and (not self.checked or self.regexes_are_due)):
            named_others = update.resolve_regexes(self.caller.may_describe)
            self.has_resolved = True
        stale = not self.checked and state.hash_of(self.topics) != state.metadata_hash
        # A classic group that is converted may have been in the middle of a rebalance.
        is_new = state.epoch == 0 or self.is_upgrade
        if is_new or names_changed or regex_changed or named_others or stale:
            update.bump()
            self.shard.consumer_rebalances += 1
        if state.epoch > state.assignment_epoch:
            update.assign(self.group_config.assignors)

    def _finish(self, before: Member) -> Decision[ConsumerGroupHeartbeatResponse]:
        member = self.update.state.members[self.member_id]
        answer = self._answer(member, changed=_is_other(before.assigned, member.assigned))
        after_write = partial(
            self._after_write, member, moved=member.state is not before.state or bool(self.update.records)
        )
        if not self.update.records:
            after_write()
            return answer

        def then() -> None:
            for action in self.then:
                action()
            after_write()

        return CoordinatorResult(self.update.records, answer=answer, then=then, refuse=refusal)

    def _answer(self, member: Member, *, changed: bool) -> ConsumerGroupHeartbeatResponse:
        unchanged_ms = self.now_ms - self.update.state.assignment_timestamp
        waits = member.state is MemberState.UNRELEASED_PARTITIONS
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.member_epoch,
            heartbeat_interval_ms=self.group_config.interval_ms(unchanged_ms=unchanged_ms, waits=waits),
        )
        if changed or self.request.member_epoch == JOIN_EPOCH or _is_full(self.request):
            answer.assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=list(numbers))
                    for topic_id, numbers in partitions_of(member.assigned).items()
                ]
            )
        return answer

    def _after_write(self, member: Member, *, moved: bool) -> None:
        """Update the in-memory state, once the records are written."""
        group = self.shard.groups[self.request.group_id]
        assert isinstance(group, ConsumerGroup)
        if self.replaced is not None and self.replaced != member.member_id:
            group.deadlines.drop(self.replaced)
        group.topics_seen = self.topics
        if self.has_resolved:
            group.regexes_resolved_ms = self.now_ms
        group.deadlines.sessions[member.member_id] = self.now_ms + self.group_config.session_timeout_ms
        group.deadlines.joins.pop(member.member_id, None)  # it may have used the classic protocol before
        group.deadlines.syncs.pop(member.member_id, None)
        if moved:
            group.schedule_revocation(member, now_ms=self.now_ms)
        group.reschedule(self.shard)


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    received, current = request.member_epoch, member.member_epoch
    if received == current:
        return
    if received > current:
        relation = "greater"
    elif received == member.previous_member_epoch and _is_within(_owned(request), member.assigned):
        return  # the answer with the new epoch may be lost
    else:
        relation = "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({received}) than the one known by the group "
        f"coordinator ({current}). The member must abandon all its partitions and rejoin.",
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    if request.topic_partitions is None:
        return None
    return {bytes(topic.topic_id): frozenset(topic.partitions) for topic in request.topic_partitions}


def _is_within(owned: Owned | None, partitions_held: AssignedPartitions) -> bool:
    if owned is None:
        return False
    return all(number in partitions_held.get(topic_id, {}) for topic_id, numbers in owned.items() for number in numbers)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A full heartbeat is answered with the full assignment."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _is_other(before: AssignedPartitions, after: AssignedPartitions) -> bool:
    return {t: before[t].keys() for t in before} != {t: after[t].keys() for t in after}


def _given(value: int, before: int) -> int:
    return before if value == -1 else value
