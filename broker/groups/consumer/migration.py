"""A group changes its protocol while it has members (KIP-848): classic to consumer, and back.

The first consumer that joins a classic group turns it into a consumer group that keeps the classic members; when the
last member of the consumer protocol leaves, the rest become a classic group again. Either conversion is a single batch
of records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tidemark.broker.coordination.result import CoordinatorResult
from tidemark.broker.core.errors import Refused
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.classic.member import Member as ClassicMember
from tidemark.broker.groups.classic.rebalance import prepare, remove_and_answer, start_session
from tidemark.broker.groups.consumer import new_records
from tidemark.broker.groups.consumer.assignors import Assignment
from tidemark.broker.groups.consumer.embedded_protocol import (
    PROTOCOL_TYPE,
    MalformedSubscription,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from tidemark.broker.groups.consumer.group_update import GroupUpdate
from tidemark.broker.groups.consumer.member import ClassicMetadata, Member, held_at
from tidemark.broker.groups.consumer.state import GroupState, Topics
from tidemark.broker.groups.group import Group
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.groups.consumer.group import ConsumerGroup
    from tidemark.broker.groups.shard import GroupShard


class Upgrade(NamedTuple):
    update: GroupUpdate
    then: Callable[[], None] | None


# -- classic to consumer ---------------------------------------------------


def upgrade(shard: GroupShard, group: Group | None, group_id: str, *, topics: Topics, now_ms: int) -> Upgrade:
    """The update that creates a consumer group in the place of `group`, if it may be converted."""
    update = GroupUpdate(GroupState(group_id), topics=topics, now_ms=now_ms)
    if group is None:
        return Upgrade(update, None)
    if not isinstance(group, ClassicGroup):
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if group.is_recorded:
        update.records += group.tombstones()
    if group.members:
        _check_upgrade(shard, group)
        _convert_members(update, group)

    def then() -> None:
        _close_classic_group(shard, group)
        _start_sessions(shard, group_id, now_ms=now_ms)

    return Upgrade(update, then)


def _check_upgrade(shard: GroupShard, group: ClassicGroup) -> None:
    from tidemark.broker.groups.consumer.group import find_group_config

    group_config = find_group_config(shard, group.group_id)
    because = None
    if not group_config.may_upgrade:
        because = "online upgrade is disabled"
    elif group.protocol_type != PROTOCOL_TYPE:
        because = "the group does not use the consumer embedded protocol"
    elif len(group.members) > group_config.members_max:
        because = "the group size exceeds the consumer group maximum size"
    if because is not None:
        raise _refused(group.group_id, because)


def _refused(group_id: str, because: str) -> Refused:
    return Refused(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {group_id} to consumer group because {because}."
    )


def _convert_members(update: GroupUpdate, group: ClassicGroup) -> None:
    """Members keep what the last generation assigned; those in a rebalance are asked to join again."""
    try:
        members = _members_with_assignments(group, update.topics)
    except MalformedSubscription:
        raise _refused(group.group_id, "the embedded consumer protocol is malformed") from None
    group_id, epoch = group.group_id, group.generation
    for member, _ in members:
        update.put_member(member)
    update.write(
        new_records.group_epoch_record(group_id, epoch=epoch, metadata_hash=update.state.hash_of(update.topics))
    )
    for member, share in members:
        update.write(new_records.target_assignment_record(group_id, member.member_id, share))
    update.write(new_records.target_assignment_epoch_record(group_id, epoch=epoch, timestamp=update.now_ms))
    for member, _ in members:
        update.put_current_assignment(member)


def _members_with_assignments(group: ClassicGroup, topics: Topics) -> list[tuple[Member, Assignment]]:
    """The members, each with the partitions that it owns.

    In the middle of a rebalance the assignment may be cleared already. A cooperative member keeps its partitions
    nevertheless, and its subscription lists them.
    """
    claimed: set[tuple[str, int]] = set()
    found = []
    for is_assigned in (True, False):
        for member in group.members.values():
            if bool(member.assignment) is not is_assigned:
                continue
            subscription = _subscription(member, group)
            known = read_assignment(member.assignment) if is_assigned else subscription.owned
            named = [(name, number) for name, numbers in known for number in numbers]
            own = [each for each in dict.fromkeys(named) if each not in claimed and each[0] in topics]
            claimed.update(own)
            found.append(_converted(member, group, subscription, _by_id(own, topics)))
    return found


def _subscription(member: ClassicMember, group: ClassicGroup) -> Subscription:
    # A group has no protocol before its first generation; but the subscription is the same in all of them.
    return read_subscription(member.metadata(group.protocol) or (member.protocols[0][1] if member.protocols else b""))


def _by_id(partitions: Collection[tuple[str, int]], topics: Topics) -> Assignment:
    by_id: dict[bytes, list[int]] = {}
    for name, number in sorted(partitions):
        by_id.setdefault(topics[name].topic_id, []).append(number)
    return {topic_id: tuple(numbers) for topic_id, numbers in by_id.items()}


def _converted(
    member: ClassicMember, group: ClassicGroup, subscription: Subscription, share: Assignment
) -> tuple[Member, Assignment]:
    taken = Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        classic=ClassicMetadata(session_timeout_ms=member.session_timeout_ms, protocols=tuple(member.protocols)),
        member_epoch=group.generation,
        previous_member_epoch=group.generation,
        assigned=held_at(share, epoch=group.generation),
    )
    return taken, share


def _close_classic_group(shard: GroupShard, group: ClassicGroup) -> None:
    """Cancel its timers; members that wait in a rebalance are told to join the consumer group."""
    group.cancel_phase()
    for timer in group.pending.values():
        timer.cancel()
    group.pending.clear()
    for member in list(group.members.values()):
        remove_and_answer(shard, group, member, ErrorCode.REBALANCE_IN_PROGRESS)


def _start_sessions(shard: GroupShard, group_id: str, *, now_ms: int) -> None:
    from tidemark.broker.groups.consumer.group import ConsumerGroup

    group = shard.groups[group_id]
    assert isinstance(group, ConsumerGroup)
    for member in group.state.members.values():
        if member.classic is not None:
            group.deadlines.sessions[member.member_id] = now_ms + member.classic.session_timeout_ms


# -- consumer to classic ---------------------------------------------------


def may_downgrade(shard: GroupShard, group: ConsumerGroup, leaving: Collection[str]) -> bool:
    """Whether only members of the classic protocol would be left, and at least one."""
    staying = [member for member_id, member in group.state.members.items() if member_id not in leaving]
    going = [group.state.members[member_id] for member_id in leaving]
    if not staying or any(member.classic is None for member in staying):
        return False
    if all(member.classic is not None for member in going):
        return False
    group_config = group.group_config(shard)
    return group_config.may_downgrade and len(staying) <= group_config.classic_members_max


def downgrade(
    shard: GroupShard,
    group: ConsumerGroup,
    leaving: Collection[str],
    *,
    answer: Any,
    refuse: Callable[[ErrorCode], Any],
    now_ms: int,
) -> CoordinatorResult:
    """Convert the remaining members to a classic group, which rebalances because a member left."""
    staying = [member for member_id, member in group.state.members.items() if member_id not in leaving]
    records = list(group.state.tombstones())
    result = become_classic(shard, group.state, staying, now_ms=now_ms, rebalance=True)
    return CoordinatorResult([*records, *result.records], answer=answer, then=result.then, refuse=refuse)


def become_classic(
    shard: GroupShard, state: GroupState, members: Collection[Member], *, now_ms: int, rebalance: bool
) -> CoordinatorResult:
    """The record of the classic group, and what to do once it is written."""
    protocols = {member.member_id: member.classic.protocols for member in members if member.classic is not None}
    group = ClassicGroup(state.group_id)
    group.protocol_type = PROTOCOL_TYPE
    group.generation = state.epoch
    for member in members:
        group.add(_to_classic_member(member))
    group.protocol = group.select_protocol()
    shares = {member.member_id: _share(shard, state, member, group.protocol) for member in members}

    def then() -> None:
        found = shard.groups[state.group_id]
        assert isinstance(found, ClassicGroup)
        for classic in found.members.values():
            found.update_protocols(classic, protocols[classic.member_id])
            start_session(shard, found, classic, now_ms=now_ms)
        if rebalance:
            prepare(shard, found, reason="the group is a classic one again", now_ms=now_ms)

    return CoordinatorResult([group.record(shares, now_ms=now_ms)], then=then, refuse=lambda _: None)


def _to_classic_member(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=list(member.classic.protocols),
    )


def _share(shard: GroupShard, state: GroupState, member: Member, protocol: str | None) -> bytes:
    """The target assignment, encoded in the version that the member uses."""
    return encoded_share(state.target_of(member.member_id), shard.image.topic_names, version=_version(member, protocol))


def _version(member: Member, protocol: str | None) -> int:
    assert member.classic is not None
    metadata = dict(member.classic.protocols).get(protocol or "", b"")
    return read_version(metadata)


def read_version(metadata: bytes) -> int:
    return max(int.from_bytes(metadata[:2], "big", signed=True), 0)


def encoded_share(share: Mapping[bytes, Collection[int]], names: Mapping[bytes, str], *, version: int) -> bytes:
    by_name = {names[topic_id]: sorted(numbers) for topic_id, numbers in share.items() if topic_id in names}
    return write_assignment(dict(sorted(by_name.items())), version=version)
