"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.groups.consumer.assignors import Assignment
from tidemark.broker.groups.consumer.group import ConsumerGroup
from tidemark.broker.groups.consumer.group_update import preferred_assignor
from tidemark.broker.groups.consumer.member import Member, partitions_of
from tidemark.broker.groups.shard import GroupShard
from tidemark.protocol.messages import consumer_group_describe as messages

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def describe(shard: GroupShard, group: ConsumerGroup) -> Job[messages.DescribedGroup]:
    state = group.state
    assignors = group.group_config(shard).assignors
    names = shard.image.topic_names
    described = messages.DescribedGroup(
        group_id=group.group_id,
        group_state=state.name,
        group_epoch=state.epoch,
        assignment_epoch=state.assignment_epoch,
        assignor_name=preferred_assignor(state.members.values(), assignors),
    )
    # As they are in this moment: while they are described, the group may change.
    shown = [(member, state.target_of(member.member_id)) for member in state.members.values()]
    described.members = yield from in_slices(partial(_member, names), shown)
    return described


def _member(names: Mapping[bytes, str], shown: tuple[Member, Assignment]) -> messages.Member:
    member, target = shown
    return messages.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(partitions_of(member.assigned), names),
        target_assignment=_assignment(target, names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], names: Mapping[bytes, str]) -> messages.Assignment:
    return messages.Assignment(
        topic_partitions=[
            messages.TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=list(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in names
        ]
    )
