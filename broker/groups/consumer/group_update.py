"""An update of a consumer group in the making: its records, and the state after they are replayed.

It works on a copy, to which each record is applied as it is made, by the same replay that loading uses. So the state
that was decided on is the state that any later replay yields, and an update that is dropped changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.consumer import new_records
from tidemark.broker.groups.consumer.assignors import ASSIGNORS, MemberSpec
from tidemark.broker.groups.consumer.member import Member
from tidemark.broker.groups.consumer.reconciliation import Owned, reconcile
from tidemark.broker.groups.consumer.regex import matching
from tidemark.broker.groups.consumer.state import GroupState, Topics

FIRST_EPOCH: Final = 2  # as Kafka 4.3 counts


class GroupUpdate:
    def __init__(self, state: GroupState, *, topics: Topics, now_ms: int) -> None:
        self.state = state.copy()
        self.records: list[CoordinatorRecord] = []
        self.topics = topics
        self.now_ms = now_ms

    def write(self, record: CoordinatorRecord) -> None:
        self.records.append(record)
        self.state.replay(record)

    # -- members -----------------------------------------------------------

    def put_member(self, member: Member) -> None:
        self.write(new_records.member_subscription_record(self.state.group_id, member))

    def put_current_assignment(self, member: Member) -> None:
        self.write(new_records.current_assignment_record(self.state.group_id, member))

    def remove_member(self, member_id: str) -> None:
        """Kafka expects this order: assignments end before the member does."""
        self.write(new_records.current_assignment_tombstone(self.state.group_id, member_id))
        self.write(new_records.target_assignment_tombstone(self.state.group_id, member_id))
        self.write(new_records.member_subscription_tombstone(self.state.group_id, member_id))

    def replace_member(self, old: Member, *, member_id: str) -> Member:
        """A static member continues under another member id, with its target and current assignment."""
        target = self.state.target_of(old.member_id)
        new = replace(old, member_id=member_id, member_epoch=0, previous_member_epoch=0)
        self.remove_member(old.member_id)
        self.put_member(new)
        self.write(new_records.target_assignment_record(self.state.group_id, member_id, target))
        self.put_current_assignment(new)
        return new

    # -- the group ---------------------------------------------------------

    def drop_unused_regexes(self) -> None:
        """Those that no member subscribes with any more."""
        for regex in sorted(self.state.regexes.keys() - self._subscribed_regexes()):
            self.write(new_records.regular_expression_tombstone(self.state.group_id, regex))

    def _subscribed_regexes(self) -> set[str]:
        members = self.state.members.values()
        return {member.subscribed_topic_regex for member in members if member.subscribed_topic_regex}

    def resolve_regexes(self, may_describe: Callable[[str], bool] | None) -> bool:
        """Evaluate the members' regular expressions again. Returns whether the topics of any of them changed.

        As in Kafka, topics that the client may not describe are left out, and that client counts whose request led
        here: the members of a group are expected to have the same rights."""
        state = self.state
        changed = False
        self.drop_unused_regexes()
        for regex in sorted(self._subscribed_regexes()):
            found = matching(regex, self.topics)
            if may_describe is not None:
                found = frozenset(filter(may_describe, found))
            known = state.regexes.get(regex)
            if known is not None and known.topics == found:
                continue
            changed = True
            version = 0 if known is None else known.version + 1
            self.write(
                new_records.regular_expression_record(
                    state.group_id, regex, found, version=version, timestamp=self.now_ms
                )
            )
        return changed

    def bump(self) -> None:
        state = self.state
        epoch = FIRST_EPOCH if state.epoch == 0 else state.epoch + 1
        self.write(
            new_records.group_epoch_record(state.group_id, epoch=epoch, metadata_hash=state.hash_of(self.topics))
        )
        if state.has_partition_metadata:
            self.write(new_records.partition_metadata_tombstone(state.group_id))

    def assign(self, assignors: Sequence[str]) -> None:
        """Compute the target assignment of the present epoch, and record it for members whose target changed."""
        state = self.state
        members = self._specs()
        counts = dict(self._subscribed_topics())
        computed = ASSIGNORS[preferred_assignor(state.members.values(), assignors)](members, counts)
        for member_id, target in computed.items():
            previous = members[member_id].previous
            if target is not previous and (target != previous or member_id not in state.targets):
                self.write(new_records.target_assignment_record(state.group_id, member_id, target))
        self.write(new_records.target_assignment_epoch_record(state.group_id, epoch=state.epoch, timestamp=self.now_ms))

    def _specs(self) -> Mapping[str, MemberSpec]:
        state = self.state
        ids: dict[frozenset[str], frozenset[bytes]] = {}
        specs = {}
        for member_id, member in state.members.items():
            names = state.subscribed_names(member)
            if names not in ids:
                ids[names] = frozenset(self.topics[name].topic_id for name in names if name in self.topics)
            specs[member_id] = MemberSpec(member.instance_id, ids[names], state.target_of(member_id))
        return specs

    def _subscribed_topics(self) -> Iterable[tuple[bytes, int]]:
        for name in self.state.all_subscribed_names():
            if name in self.topics:
                yield self.topics[name].topic_id, len(self.topics[name].partitions)

    def step(self, member_id: str, *, owned: Owned | None, subscription_changed: bool = False) -> None:
        """Reconcile a member with its target assignment as far as possible now."""
        state = self.state
        member = state.members[member_id]
        if not subscription_changed and member.is_reconciled_to(state.assignment_epoch):
            return
        after = reconcile(
            member,
            target=state.target_of(member_id),
            target_epoch=state.assignment_epoch,
            subscribed=state.subscribed_ids(member, self.topics),
            owned=owned,
            is_free=state.is_free,
            subscription_changed=subscription_changed,
        )
        if after is not member:
            self.put_current_assignment(after)


def preferred_assignor(members: Collection[Member], assignors: Sequence[str]) -> str:
    """The assignor most members ask for; of equals, the first in group.consumer.assignors."""
    votes = Counter(member.server_assignor for member in members if member.server_assignor in assignors)
    return max(assignors, key=lambda name: votes[name])
