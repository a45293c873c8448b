"""Makes the records of a consumer group, and their tombstones."""

from __future__ import annotations

from collections.abc import Collection

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.consumer.assignors import Assignment
from tidemark.broker.groups.consumer.member import Member
from tidemark.broker.groups.consumer.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
)


def group_epoch_record(group_id: str, *, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_subscription_record(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(_member_key(group_id, member.member_id), member.metadata_value())


def member_subscription_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_member_key(group_id, member_id), None)


def _member_key(group_id: str, member_id: str) -> ConsumerGroupMemberMetadataKey:
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def target_assignment_epoch_record(group_id: str, *, epoch: int, timestamp: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp),
    )


def target_assignment_epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_assignment_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    partitions = [TopicPartition(topic_id=topic_id, partitions=list(numbers)) for topic_id, numbers in target.items()]
    return CoordinatorRecord(
        _target_key(group_id, member_id), ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    )


def target_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_target_key(group_id, member_id), None)


def _target_key(group_id: str, member_id: str) -> ConsumerGroupTargetAssignmentMemberKey:
    return ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def current_assignment_record(group_id: str, member: Member) -> CoordinatorRecord:
    return CoordinatorRecord(_current_key(group_id, member.member_id), member.assignment_value())


def current_assignment_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_current_key(group_id, member_id), None)


def _current_key(group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def regular_expression_record(
    group_id: str, regex: str, topics: Collection[str], *, version: int, timestamp: int
) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp)
    return CoordinatorRecord(_regex_key(group_id, regex), value)


def regular_expression_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return CoordinatorRecord(_regex_key(group_id, regex), None)


def _regex_key(group_id: str, regex: str) -> ConsumerGroupRegularExpressionKey:
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
