"""A classic group as data: its members, their generation, and how it is written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Final

from tidemark.broker.coordination.facts import Fact
from tidemark.broker.groups.alarms import Alarm
from tidemark.broker.groups.classic.member import Member, Protocols
from tidemark.broker.groups.classic.subscription import subscribed_topics
from tidemark.broker.groups.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidemark.protocol.errors import ErrorCode

CONSUMER: Final = "consumer"  # the protocol type whose subscriptions we can read
RECORD_VERSION: Final = 3  # of GroupMetadataValue: what Kafka 4 writes


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Roster:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        # What the log says.
        self.generation = 0
        self.protocol_type: str | None = None  # None: a simple group, which only commits
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state_since_ms = -1
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}  # instance id → member id
        # What only we know, and forget when we stop.
        self.state = State.EMPTY
        self.previous_state = State.EMPTY
        self.is_recorded = False
        self.pending: dict[str, Alarm] = {}  # ids that we gave out and that have not joined yet (KIP-394)
        self.unsynced: set[str] = set()  # members of this generation that have not asked for their assignment
        self.new_member_added = False  # since the initial delay began
        self.phase_alarm: Alarm | None = None  # the end of joining, or of syncing
        self.joining = 0  # members whose JoinGroup waits
        self.topics: frozenset[str] | None = None  # subscribed ones, where we can know
        self._votes: Counter[str] = Counter()  # how many members know each protocol

    # -- facts about it ----------------------------------------------------

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        return self.joining == len(self.members) and not self.pending

    def supports(self, protocol_type: str, protocols: Collection[str]) -> bool:
        """Whether a member with these protocols finds one here that all the others know, too."""
        if self.state is State.EMPTY:
            return bool(protocol_type and protocols)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._votes[name] == everybody for name in protocols)

    def select_protocol(self) -> str:
        """Of the protocols that all know, the one that most prefer; of equals, the one that was voted for first."""
        everybody = len(self.members)
        candidates = {name for name, count in self._votes.items() if count == everybody}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            current = self.statics.get(instance_id)
            if current is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    # -- members come and go -----------------------------------------------

    def add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        self._votes.update(name for name, _ in member.protocols)
        self.joining += member.join is not None
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: Member) -> None:
        del self.members[member.member_id]
        if member.instance_id is not None and self.statics.get(member.instance_id) == member.member_id:
            del self.statics[member.instance_id]
        self._votes.subtract(name for name, _ in member.protocols)
        self.joining -= member.join is not None
        self.unsynced.discard(member.member_id)
        member.cancel_alarm()
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def revise(self, member: Member, protocols: Protocols) -> None:
        self._votes.subtract(name for name, _ in member.protocols)
        member.protocols = protocols
        self._votes.update(name for name, _ in protocols)

    def enter(self, state: State, *, now_ms: int) -> None:
        self.previous_state, self.state, self.state_since_ms = self.state, state, now_ms

    def cancel_phase(self) -> None:
        if self.phase_alarm is not None:
            self.phase_alarm.cancel()
            self.phase_alarm = None

    def note_subscriptions(self) -> None:
        if self.protocol_type != CONSUMER:
            self.topics = None
        else:
            self.topics = subscribed_topics(list(self.members.values()), self.protocol)

    # -- the log -----------------------------------------------------------

    def fact(
        self, assignments: Mapping[str, bytes], *, now_ms: int, replaced: Mapping[str, Member] | None = None
    ) -> Fact:
        """This generation with its assignments. `replaced`: members in whose place another goes on."""
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
        return Fact(GroupMetadataKey(group=self.group_id), value, RECORD_VERSION)

    def empty_fact(self, *, now_ms: int) -> Fact:
        """The next generation, without anybody."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "", generation=self.generation + 1, current_state_timestamp=now_ms
        )
        return Fact(GroupMetadataKey(group=self.group_id), value, RECORD_VERSION)

    def restore(self, value: GroupMetadataValue) -> None:
        """Become what a record says. Members that are here already keep what only we know of them."""
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
        self.previous_state, self.state = self.state, State.STABLE if self.members else State.EMPTY
        self.note_subscriptions()


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
