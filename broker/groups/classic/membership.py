"""The members and the generation of a classic group, and the record that stores them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.classic.member import Member, Protocols
from tidemark.broker.groups.classic.subscription import subscribed_topics
from tidemark.broker.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidemark.broker.groups.timers import Timer
from tidemark.protocol.errors import ErrorCode

CONSUMER: Final = "consumer"  # the protocol type whose subscriptions we can read
RECORD_VERSION: Final = 3  # of GroupMetadataValue: what Kafka 4 writes


class ClassicGroupState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class GroupMembership:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # Replayed from the log.
        self.generation = 0
        self.protocol_type: str | None = None  # None: a simple group, which only commits
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state_since_ms = -1
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id → member id
        # In memory only.
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.EMPTY
        self.is_recorded = False
        self.pending: dict[str, Timer] = {}  # member ids given out that have not joined with them yet (KIP-394)
        self.unsynced: set[str] = set()  # members of this generation that have not asked for their assignment
        self.new_member_added = False  # since the initial delay began
        self.phase_timer: Timer | None = None  # the end of joining, or of syncing
        self.joining = 0  # members whose JoinGroup waits
        self.topics: frozenset[str] | None = None  # that members subscribe to; None if that is unknown
        self.told_bytes = 0  # by the members, about themselves
        self._votes: Counter[str] = Counter()  # how many members support each protocol

    # -- facts about it ----------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether one of these protocols is supported by all other members."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type and protocols)
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(self._votes[name] == member_count for name in protocols)

    def select_protocol(self) -> str:
        """Of the protocols that all members support, the one most members prefer; of equals, the first voted for."""
        member_count = len(self.members)
        candidates = {name for name, count in self._votes.items() if count == member_count}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- members come and go -----------------------------------------------

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._votes.update(name for name, _ in member.protocols)
        self.told_bytes += _told_bytes(member.protocols)
        self.joining += member.join is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]
        self._votes.subtract(name for name, _ in member.protocols)
        self.told_bytes -= _told_bytes(member.protocols)
        self.joining -= member.join is not None
        self.unsynced.discard(member.member_id)
        member.cancel_timer()
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def update_protocols(self, member: Member, protocols: Protocols) -> None:
        self._votes.subtract(name for name, _ in member.protocols)
        self.told_bytes += _told_bytes(protocols) - _told_bytes(member.protocols)
        member.protocols = protocols
        self._votes.update(name for name, _ in protocols)

    def transition_to(self, state: ClassicGroupState, *, now_ms: int) -> None:
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    def cancel_phase(self) -> None:
        if self.phase_timer is not None:
            self.phase_timer.cancel()
            self.phase_timer = None

    def update_subscribed_topics(self) -> None:
        if self.protocol_type != CONSUMER:
            self.topics = None
        else:
            self.topics = subscribed_topics(list(self.members.values()), self.protocol)

    # -- the log -----------------------------------------------------------

    def record(
        self, assignments: Mapping[str, bytes], *, now_ms: int, replaced: Mapping[str, Member] | None = None
    ) -> CoordinatorRecord:
        """This generation with its assignments. `replaced`: member ids whose member is exchanged for another."""
        replaced = replaced or {}
        members = [(assignments.get(each, b""), replaced.get(each, member)) for each, member in self.members.items()]
        leader = replaced.get(self.leader or "")
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader if leader is None else leader.member_id,
            current_state_timestamp=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol),
                    assignment=assignment,
                )
                for assignment, member in members
            ],
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, RECORD_VERSION)

    def empty_group_record(self, *, now_ms: int) -> CoordinatorRecord:
        """The next generation, without members."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "", generation=self.generation + 1, current_state_timestamp=now_ms
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value, RECORD_VERSION)

    def restore(self, value: GroupMetadataValue) -> None:
        """Take over what a record says. Members that exist already keep their in-memory state."""
        self.is_recorded = True
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        self.state_since_ms = value.current_state_timestamp
        named = {each.member_id for each in value.members}
        for member in [member for member_id, member in self.members.items() if member_id not in named]:
            self.remove(member)
        for each in value.members:
            if each.member_id not in self.members:
                self.add(_member_of(each, value.protocol))
            self.members[each.member_id].assignment = bytes(each.assignment)
        self.leader = value.leader
        self.previous_state, self.state = (
            self.state,
            ClassicGroupState.STABLE if self.members else ClassicGroupState.EMPTY,
        )
        self.update_subscribed_topics()


def _told_bytes(protocols: Protocols) -> int:
    return sum(len(metadata) for _, metadata in protocols)


def _member_of(each: MemberMetadata, protocol: str | None) -> Member:
    return Member(
        member_id=each.member_id,
        instance_id=each.group_instance_id,
        client_id=each.client_id,
        client_host=each.client_host,
        # Version 0 of the record had no rebalance time-out: the session's served as both.
        rebalance_timeout_ms=each.rebalance_timeout or each.session_timeout,
        session_timeout_ms=each.session_timeout,
        protocols=[(protocol or "", bytes(each.subscription))],
    )
