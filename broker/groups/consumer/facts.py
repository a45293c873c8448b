"""Makes the records of a consumer group. Without a value, a fact ends what was so."""

from __future__ import annotations

from collections.abc import Collection

from tidemark.broker.coordination.facts import Fact
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


def group_fact(group_id: str, *, epoch: int, metadata_hash: int) -> Fact:
    return Fact(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_end(group_id: str) -> Fact:
    return Fact(ConsumerGroupMetadataKey(group_id=group_id), None)


def partition_metadata_end(group_id: str) -> Fact:
    return Fact(ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def member_fact(group_id: str, member: Member) -> Fact:
    return Fact(_member_key(group_id, member.member_id), member.metadata_value())


def member_end(group_id: str, member_id: str) -> Fact:
    return Fact(_member_key(group_id, member_id), None)


def _member_key(group_id: str, member_id: str) -> ConsumerGroupMemberMetadataKey:
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def targets_fact(group_id: str, *, epoch: int, timestamp: int) -> Fact:
    return Fact(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp),
    )


def targets_end(group_id: str) -> Fact:
    return Fact(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None)


def target_fact(group_id: str, member_id: str, target: Assignment) -> Fact:
    partitions = [TopicPartition(topic_id=topic_id, partitions=list(numbers)) for topic_id, numbers in target.items()]
    return Fact(_target_key(group_id, member_id), ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions))


def target_end(group_id: str, member_id: str) -> Fact:
    return Fact(_target_key(group_id, member_id), None)


def _target_key(group_id: str, member_id: str) -> ConsumerGroupTargetAssignmentMemberKey:
    return ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def current_fact(group_id: str, member: Member) -> Fact:
    return Fact(_current_key(group_id, member.member_id), member.assignment_value())


def current_end(group_id: str, member_id: str) -> Fact:
    return Fact(_current_key(group_id, member_id), None)


def _current_key(group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def regex_fact(group_id: str, regex: str, topics: Collection[str], *, version: int, timestamp: int) -> Fact:
    value = ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=timestamp)
    return Fact(_regex_key(group_id, regex), value)


def regex_end(group_id: str, regex: str) -> Fact:
    return Fact(_regex_key(group_id, regex), None)


def _regex_key(group_id: str, regex: str) -> ConsumerGroupRegularExpressionKey:
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
