"""Where groups are: what they committed, how far the topics go, and which member reads what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tidemark.cli import client
from tidemark.failure import CommandFailed, ExitCode

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, MemberDescription, OffsetSpec

HEADS = ("topic", "partition", "current offset", "end offset", "lag", "member", "host", "client id")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPosition:
    """One partition of a group. `current_offset` is None where nothing was committed, `end_offset` where the partition
    is gone; without both there is no lag."""

    group: str
    topic: str
    partition: int
    current_offset: int | None = None
    end_offset: int | None = None
    lag: int | None = None
    member_id: str | None = None
    host: str | None = None
    client_id: str | None = None

    def row(self) -> tuple[object, ...]:
        return tuple(asdict(self).values())[1:]


def describe_group(admin: AdminClient, args: argparse.Namespace, group: str) -> ConsumerGroupDescription:
    """State, members and what is assigned to them."""
    from confluent_kafka import KafkaException

    try:
        found: ConsumerGroupDescription = admin.describe_consumer_groups([group], request_timeout=args.timeout)[
            group
        ].result()
        return found
    except KafkaException as error:
        raise group_failure(error, group, args) from None


def exists(described: ConsumerGroupDescription) -> bool:
    return bool(described.state.name != "DEAD")


def group_failure(error: Exception, group: str, args: argparse.Namespace) -> CommandFailed:
    from confluent_kafka import KafkaError

    reason = error.args[0]
    if reason.code() == KafkaError.GROUP_ID_NOT_FOUND:
        return no_such_group(group)
    if reason.code() == KafkaError.NON_EMPTY_GROUP:
        return CommandFailed(f"Group {group} has members. Stop them first.")
    return client.failure(reason, about=f"Group {group}", bootstrap=args.bootstrap)


def no_such_group(group: str) -> CommandFailed:
    return CommandFailed(f"There is no group {group}.", code=ExitCode.NOT_FOUND)


def committed_offsets(admin: AdminClient, args: argparse.Namespace, group: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException

    wanted = [ConsumerGroupTopicPartitions(group)]
    try:
        found = admin.list_consumer_group_offsets(wanted, request_timeout=args.timeout)[group].result()
    except KafkaException as error:
        raise group_failure(error, group, args) from None
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions if each.offset >= 0}


def offsets_at(
    admin: AdminClient, args: argparse.Namespace, partitions: Iterable[tuple[str, int]], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    """The offset of each partition at the start, the end or a time; partitions that are not there are left out."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    futures: dict[TopicPartition, Any] = {}
    wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
    if wanted:
        futures = admin.list_offsets(wanted, request_timeout=args.timeout)
    gone = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
    found = {}
    for partition, future in futures.items():
        try:
            found[partition.topic, partition.partition] = future.result().offset
        except KafkaException as error:
            if error.args[0].code() not in gone:
                raise client.failure(error.args[0], about=partition.topic, bootstrap=args.bootstrap) from None
    return found


def positions(admin: AdminClient, args: argparse.Namespace, described: ConsumerGroupDescription) -> list[GroupPosition]:
    """Every partition that a group committed for or that a member of it reads, in order."""
    from confluent_kafka.admin import OffsetSpec

    group = described.group_id
    committed = committed_offsets(admin, args, group)
    owners = {
        (partition.topic, partition.partition): member
        for member in described.members
        for partition in member.assignment.topic_partitions
    }
    partitions = sorted(committed.keys() | owners.keys())
    ends = offsets_at(admin, args, partitions, OffsetSpec.latest())
    return [_position(group, each, committed.get(each), ends.get(each), owners.get(each)) for each in partitions]


def _position(
    group: str, partition: tuple[str, int], current: int | None, end: int | None, owner: MemberDescription | None
) -> GroupPosition:
    return GroupPosition(
        group=group,
        topic=partition[0],
        partition=partition[1],
        current_offset=current,
        end_offset=end,
        lag=None if current is None or end is None else max(end - current, 0),
        member_id=owner.member_id if owner else None,
        host=owner.host if owner else None,
        client_id=owner.client_id if owner else None,
    )
