"""JoinGroup to a consumer group: a member that speaks the classic protocol, while the group is being upgraded.

It does not wait for the others and never leads: the broker assigns. The generation in the answer is the member epoch;
SyncGroup returns the assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tidemark.broker.coordination.result import CoordinatorResult, Decision
from tidemark.broker.core.deferred import Deferred
from tidemark.broker.core.errors import Refused
from tidemark.broker.groups.classic.join import MEMBER_ID_REQUIRED_FROM, rebalance_timeout_ms, refusal
from tidemark.broker.groups.consumer import migration
from tidemark.broker.groups.consumer.embedded_protocol import (
    PROTOCOL_TYPE,
    MalformedSubscription,
    Subscription,
    read_subscription,
)
from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.consumer.group_update import GroupUpdate
from tidemark.broker.groups.consumer.member import ClassicMetadata, Member
from tidemark.broker.groups.consumer.member_removal import check_instance
from tidemark.broker.groups.consumer.reconciliation import Owned
from tidemark.broker.groups.group import Caller
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

REFUSED: Final = "Member {}'s protocols are not supported."


def join(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int
) -> Decision[JoinGroupResponse]:
    if group.is_empty:
        return _join_as_classic_group(shard, group, request, caller, now_ms)
    try:
        return _Join(shard, group, request, caller, now_ms).decide()
    except Refused as refused:
        return refusal(refused.code, caller, member_id=request.member_id)


def _join_as_classic_group(
    shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int
) -> Decision[JoinGroupResponse]:
    """The consumer group is empty, so the member starts a classic group in its place."""
    deferred: Deferred[Any] = Deferred()

    def then() -> None:
        answer = shard.join(request, caller, now_ms)
        if isinstance(answer, Deferred):
            answer.then(deferred.resolve)
        else:
            shard.reply(deferred, answer)

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        return refusal(code, caller, member_id=request.member_id)

    if request.member_id:
        return refuse(ErrorCode.UNKNOWN_MEMBER_ID)
    return CoordinatorResult(group.tombstones(), answer=deferred, then=then, refuse=refuse)


class _Join:
    def __init__(
        self, shard: GroupShard, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> None:
        self.shard = shard
        self.group = group
        self.request = request
        self.caller = caller
        self.now_ms = now_ms
        self.topics = shard.image.topics
        self.protocols = tuple((each.name, bytes(each.metadata)) for each in request.protocols)
        self.member_id = request.member_id or shard.new_member_id(request.group_instance_id or caller.client_id)
        self.replaced: Member | None = None

    def decide(self) -> Decision[JoinGroupResponse]:
        self._check()
        if self._must_return():
            return refusal(ErrorCode.MEMBER_ID_REQUIRED, self.caller, member_id=self.member_id)
        update = self.update = GroupUpdate(self.group.state, topics=self.topics, now_ms=self.now_ms)
        subscription = self._subscription()
        before = self._find()
        after = self._updated(before, subscription)
        changed = after.subscribed_topic_names != before.subscribed_topic_names or bool(before.subscribed_topic_regex)
        if after != before or self.member_id not in update.state.members:
            update.put_member(after)
        self._renew_group(changed=changed)
        if self._is_last_to_change_over():
            return self._downgrade(subscription, changed=changed)
        if update.state.epoch > update.state.assignment_epoch:
            update.assign(self.group.group_config(self.shard).assignors)
        update.step(self.member_id, owned=self._owned(subscription), subscription_changed=changed)
        return self._finish(update.records, self._after_write)

    def _check(self) -> None:
        members, limit = self.group.state.members, self.group.group_config(self.shard).members_max
        if self.member_id not in members and len(members) >= limit:
            raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has reached its maximum of {limit} members.")
        if self.request.protocol_type != PROTOCOL_TYPE or not self._finds_a_protocol():
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, REFUSED.format(self.member_id))

    def _finds_a_protocol(self) -> bool:
        """Whether all classic members support one of these protocols."""
        candidates = {name for name, _ in self.protocols}
        for member in self.group.state.members.values():
            if member.classic is not None and member.member_id != self.member_id:
                candidates &= {name for name, _ in member.classic.protocols}
        return bool(candidates)

    def _must_return(self) -> bool:
        """KIP-394."""
        request = self.request
        is_known = request.member_id or request.group_instance_id is not None
        return not is_known and self.caller.version >= MEMBER_ID_REQUIRED_FROM

    def _subscription(self) -> Subscription:
        try:
            return read_subscription(self.protocols[0][1])
        except MalformedSubscription as error:
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The subscription is malformed: {error}.") from None

    def _find(self) -> Member:
        state, instance_id = self.update.state, self.request.group_instance_id
        if instance_id is None:
            return state.members.get(self.member_id) or Member(member_id=self.member_id)
        if self.request.member_id:
            return check_instance(self.group, member_id=self.member_id, instance_id=instance_id)
        self.replaced = state.members.get(state.static_members.get(instance_id, ""))
        if self.replaced is None:
            return Member(member_id=self.member_id)
        return self.update.replace_member(self.replaced, member_id=self.member_id)

    def _updated(self, member: Member, subscription: Subscription) -> Member:
        instance_id = self.request.group_instance_id
        return replace(
            member,
            instance_id=member.instance_id if instance_id is None else instance_id,
            rack_id=member.rack_id if subscription.rack_id is None else subscription.rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms(self.request),
            subscribed_topic_names=frozenset(subscription.topics),
            subscribed_topic_regex=None,  # classic clients resolve expressions themselves
            client_id=self.caller.client_id,
            client_host=self.caller.host,
            classic=ClassicMetadata(session_timeout_ms=self.request.session_timeout_ms, protocols=self.protocols),
        )

    def _renew_group(self, *, changed: bool) -> None:
        update, checked = self.update, self.group.topics_seen is self.topics
        state = update.state
        named_others = (
            update.resolve_regexes(self.caller.may_describe) if state.regexes and (changed or not checked) else False
        )
        if changed or named_others or (not checked and state.hash_of(self.topics) != state.metadata_hash):
            update.bump()
            self.shard.consumer_rebalances += 1

    def _owned(self, subscription: Subscription) -> Owned:
        return {self.topics[name].topic_id: frozenset(own) for name, own in subscription.owned if name in self.topics}

    def _is_last_to_change_over(self) -> bool:
        """Whether it replaces the last member that uses the consumer protocol."""
        if self.replaced is None or self.replaced.classic is not None:
            return False
        members, group_config = self.update.state.members, self.group.group_config(self.shard)
        all_classic = all(member.classic is not None for member in members.values())
        return all_classic and group_config.may_downgrade and len(members) <= group_config.classic_members_max

    def _downgrade(self, subscription: Subscription, *, changed: bool) -> Decision[JoinGroupResponse]:
        update = self.update
        if not changed:
            update.step(self.member_id, owned=self._owned(subscription))
        members = list(update.state.members.values())
        classic = migration.become_classic(
            self.shard, update.state, members, now_ms=self.now_ms, rebalance=update.state.epoch > self.group.state.epoch
        )
        records = [*update.records, *list(update.state.tombstones()), *classic.records]
        return self._finish(records, classic.then or (lambda: None))

    def _finish(self, records: list[Any], then: Callable[[], None]) -> Decision[JoinGroupResponse]:
        member = self.update.state.members[self.member_id]
        answer = JoinGroupResponse(
            generation_id=member.member_epoch,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocols[0][0],
            member_id=member.member_id,
        )
        if not records:
            then()
            return answer

        def refuse(code: ErrorCode) -> JoinGroupResponse:
            return refusal(code, self.caller, member_id=self.request.member_id)

        return CoordinatorResult(records, answer=answer, then=then, refuse=refuse)

    def _after_write(self) -> None:
        group, deadlines, member_id = self.group, self.group.deadlines, self.member_id
        if self.replaced is not None:
            deadlines.drop(self.replaced.member_id)
        group.topics_seen = self.topics
        deadlines.revocations.pop(member_id, None)
        deadlines.joins.pop(member_id, None)
        deadlines.sessions[member_id] = self.now_ms + self.request.session_timeout_ms
        deadlines.syncs[member_id] = self.now_ms + rebalance_timeout_ms(self.request)
        group.reschedule(self.shard)
