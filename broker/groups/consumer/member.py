"""A member of a consumer group, as an immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from tidemark.broker.groups.consumer.assignors import Assignment
from tidemark.broker.groups.consumer.records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2  # the instance will be back within its session time-out


class MemberState(IntEnum):
    """Kafka's numbers: they are written."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # must revoke partitions, and has not confirmed it yet
    UNRELEASED_PARTITIONS = 2  # waits for partitions that others still own


AssignedPartitions = Mapping[bytes, Mapping[int, int]]  # by topic id: partition -> the epoch at which it was assigned
NOTHING: Final[AssignedPartitions] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMetadata:
    """What a member that uses the classic protocol has in addition."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # by preference: name and subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMetadata | None = None
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = field(default_factory=dict)
    pending_revocation: AssignedPartitions = field(default_factory=dict)

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def metadata_value(self) -> ConsumerGroupMemberMetadataValue:
        return ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=sorted(self.subscribed_topic_names),
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            server_assignor=self.server_assignor,
            classic_member_metadata=_classic_value(self.classic),
        )

    def assignment_value(self) -> ConsumerGroupCurrentMemberAssignmentValue:
        return ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=self.state,
            assigned_partitions=_written(self.assigned),
            partitions_pending_revocation=_written(self.pending_revocation),
        )


def _classic_value(classic: ClassicMetadata | None) -> ClassicMemberMetadata | None:
    if classic is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in classic.protocols],
    )


def read_classic(value: ClassicMemberMetadata | None) -> ClassicMetadata | None:
    if value is None:
        return None
    return ClassicMetadata(
        session_timeout_ms=value.session_timeout_ms,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in value.supported_protocols),
    )


def _written(partitions_held: AssignedPartitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[number] for number in sorted(epochs)],
        )
        for topic_id, epochs in sorted(partitions_held.items())
    ]


def read_assigned_partitions(written: Iterable[TopicPartitions], *, default_epoch: int) -> AssignedPartitions:
    """Brokers before Kafka 4.3 wrote no assignment epochs: the member epoch is the strictest assumption."""
    return {
        bytes(topic.topic_id): dict(
            zip(
                topic.partitions,
                topic.assignment_epochs or [default_epoch] * len(topic.partitions),
                strict=True,
            )
        )
        for topic in written
    }


def partitions_of(partitions_held: AssignedPartitions) -> Assignment:
    return {topic_id: tuple(sorted(epochs)) for topic_id, epochs in sorted(partitions_held.items())}


def held_at(assignment: Assignment, *, epoch: int) -> AssignedPartitions:
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in assignment.items()}
