"""The state of a consumer group. Replaying records is the only way to change it.

Compaction may have removed older records and left newer ones in an order that was never written, so replay accepts
every record as it comes; the latest one wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.consumer import new_records
from tidemark.broker.groups.consumer.assignors import Assignment
from tidemark.broker.groups.consumer.member import (
    AssignedPartitions,
    Member,
    MemberState,
    read_assigned_partitions,
    read_classic,
)
from tidemark.broker.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from tidemark.broker.metadata.image import TopicImage

Topics = Mapping[str, TopicImage]
NO_TARGET: Final[Assignment] = {}
_STATES: Final = {int(state): state for state in MemberState}  # a newer broker may write others


class Resolved(NamedTuple):
    """The topics that a regular expression matched when it was last evaluated."""

    topics: frozenset[str]
    version: int
    timestamp: int


class GroupState:
    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp",
        "epoch",
        "group_id",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "static_members",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.assignment_timestamp = 0
        self.has_partition_metadata = False  # written by Kafka before 4.1
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.targets: dict[str, Assignment] = {}
        self.owners: dict[tuple[bytes, int], str] = {}  # the member that owns a partition or has not revoked it yet
        self.regexes: dict[str, Resolved] = {}

    def copy(self) -> GroupState:
        """For an update. Shallow, because members, targets and resolved expressions are immutable."""
        twin = GroupState(self.group_id)
        for name in ("epoch", "metadata_hash", "assignment_epoch", "assignment_timestamp", "has_partition_metadata"):
            setattr(twin, name, getattr(self, name))
        for name in ("members", "static_members", "targets", "owners", "regexes"):
            setattr(twin, name, getattr(self, name).copy())
        return twin

    # -- facts about it ----------------------------------------------------

    @property
    def name(self) -> str:
        """Kafka's name of the state the group is in."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        settled = all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values())
        return "Stable" if settled else "Reconciling"

    def is_free(self, topic_id: bytes, number: int) -> bool:
        return (topic_id, number) not in self.owners

    def target_of(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_TARGET)

    def subscribed_names(self, member: Member) -> frozenset[str]:
        resolved = self.regexes.get(member.subscribed_topic_regex or "")
        if resolved is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | resolved.topics

    def subscribed_ids(self, member: Member, topics: Topics) -> frozenset[bytes]:
        return frozenset(topics[name].topic_id for name in self.subscribed_names(member) if name in topics)

    def all_subscribed_names(self) -> frozenset[str]:
        return frozenset[str]().union(*{self.subscribed_names(member) for member in self.members.values()})

    def hash_of(self, topics: Topics) -> int:
        """A digest of what the assignors know of the subscribed topics.

        Not Kafka's own hash: a Kafka broker that takes over the group computes one more assignment.
        """
        subscribed = sorted(name for name in self.all_subscribed_names() if name in topics)
        if not subscribed:
            return 0
        digest = blake2b(digest_size=8)
        for name in subscribed:
            digest.update(b"%b%d." % (topics[name].topic_id, len(topics[name].partitions)))
        return int.from_bytes(digest.digest(), "big", signed=True)

    def tombstones(self) -> Iterator[CoordinatorRecord]:
        """Deletes the group, in Kafka's order: members before the group."""
        for member_id in self.members:
            yield new_records.current_assignment_tombstone(self.group_id, member_id)
        for member_id in sorted(self.members.keys() | self.targets.keys()):
            yield new_records.target_assignment_tombstone(self.group_id, member_id)
        yield new_records.target_assignment_epoch_tombstone(self.group_id)
        for member_id in self.members:
            yield new_records.member_subscription_tombstone(self.group_id, member_id)
        for regex in self.regexes:
            yield new_records.regular_expression_tombstone(self.group_id, regex)
        if self.has_partition_metadata:
            yield new_records.partition_metadata_tombstone(self.group_id)
        yield new_records.group_epoch_tombstone(self.group_id)

    # -- replay ------------------------------------------------------------

    def replay(self, record: CoordinatorRecord) -> None:
        _REPLAY[type(record.key)](self, record.key, record.value)

    def _group(self, _key: ConsumerGroupMetadataKey, value: ConsumerGroupMetadataValue | None) -> None:
        self.epoch, self.metadata_hash = (0, 0) if value is None else (value.epoch, value.metadata_hash)

    def _partition_metadata(self, _key: ConsumerGroupPartitionMetadataKey, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _targets(
        self, _key: ConsumerGroupTargetAssignmentMetadataKey, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        self.assignment_epoch = 0 if value is None else value.assignment_epoch
        self.assignment_timestamp = 0 if value is None else value.assignment_timestamp

    def _target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = {
                bytes(topic.topic_id): tuple(topic.partitions) for topic in value.topic_partitions
            }

    def _member(self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> None:
        before = self.members.get(key.member_id)
        if before is not None and before.instance_id is not None:
            self._forget_instance(before.instance_id, key.member_id)
        if value is None:
            if before is not None:
                self._disown(key.member_id, before)
                del self.members[key.member_id]
            return
        self.members[key.member_id] = replace(
            before or Member(member_id=key.member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=frozenset(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=read_classic(value.classic_member_metadata),
        )
        if value.instance_id is not None:
            self.static_members[value.instance_id] = key.member_id

    def _current(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        before = self.members.get(key.member_id)
        if value is None:
            if before is not None:
                self._disown(key.member_id, before)
                self.members[key.member_id] = replace(
                    before,
                    member_epoch=0,
                    previous_member_epoch=0,
                    state=MemberState.STABLE,
                    assigned={},
                    pending_revocation={},
                )
            return
        if before is not None:
            self._disown(key.member_id, before)
        after = replace(
            before or Member(member_id=key.member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=_STATES.get(value.state, MemberState.STABLE),
            assigned=read_assigned_partitions(value.assigned_partitions, default_epoch=value.member_epoch),
            pending_revocation=read_assigned_partitions(
                value.partitions_pending_revocation, default_epoch=value.member_epoch
            ),
        )
        self.members[key.member_id] = after
        self._own(key.member_id, after.assigned)
        self._own(key.member_id, after.pending_revocation)

    def _regex(self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = Resolved(frozenset(value.topics), value.version, value.timestamp)

    def _forget_instance(self, instance_id: str, member_id: str) -> None:
        if self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _own(self, member_id: str, partitions_held: AssignedPartitions) -> None:
        for topic_id, epochs in partitions_held.items():
            for number in epochs:
                self.owners[topic_id, number] = member_id

    def _disown(self, member_id: str, member: Member) -> None:
        for partitions_held in (member.assigned, member.pending_revocation):
            for topic_id, epochs in partitions_held.items():
                for number in epochs:
                    if self.owners.get((topic_id, number)) == member_id:
                        del self.owners[topic_id, number]


_REPLAY: Final[dict[type[Any], Callable[[GroupState, Any, Any], None]]] = {
    ConsumerGroupMetadataKey: GroupState._group,
    ConsumerGroupPartitionMetadataKey: GroupState._partition_metadata,
    ConsumerGroupMemberMetadataKey: GroupState._member,
    ConsumerGroupTargetAssignmentMetadataKey: GroupState._targets,
    ConsumerGroupTargetAssignmentMemberKey: GroupState._target,
    ConsumerGroupCurrentMemberAssignmentKey: GroupState._current,
    ConsumerGroupRegularExpressionKey: GroupState._regex,
}
KEY_TYPES: Final = tuple(_REPLAY)
