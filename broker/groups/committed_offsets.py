"""Committed offsets of all the groups of a shard: one value per group, topic and partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Set
from itertools import groupby
from operator import itemgetter

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.group import Group
from tidemark.broker.groups.pending_offsets import PendingOffsets
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue

ByPartition = dict[int, OffsetCommitValue]
ByTopic = dict[str, ByPartition]
Committed = tuple[str, int, OffsetCommitValue]  # topic, partition, offset


class CommittedOffsets:
    """Changed by `replay` only, read by `of_group`. Offsets of a transaction are held apart until it ends."""

    def __init__(self) -> None:
        self._groups: dict[str, ByTopic] = {}
        self._pending = PendingOffsets()

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if self._pending:
            self._pending.supersede(key, forget=value is None)
        self._store(key, value)

    def _store(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is not None:
            topics = self._groups.get(key.group)
            if topics is None:
                topics = self._groups[key.group] = {}
            partitions = topics.get(key.topic)
            if partitions is None:
                partitions = topics[key.topic] = {}
            partitions[key.partition] = value
            return
        self._forget(key)

    def _forget(self, key: OffsetCommitKey) -> None:
        topics = self._groups.get(key.group, {})
        partitions = topics.get(key.topic, {})
        partitions.pop(key.partition, None)
        if not partitions:
            topics.pop(key.topic, None)
        if not topics:
            self._groups.pop(key.group, None)

    def of_group(self, group_id: str) -> ByTopic:
        return self._groups.get(group_id, {})

    def of_topic(self, group_id: str, topic: str) -> ByPartition:
        return self._groups.get(group_id, {}).get(topic, {})

    def each_of(self, group_id: str) -> Iterator[Committed]:
        """What a group has committed, topic by topic. It may change between two of them."""
        for topic in list(self.of_group(group_id)):
            for partition, value in list(self.of_topic(group_id, topic).items()):
                yield topic, partition, value

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    # -- in transactions ---------------------------------------------------

    def replay_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        self._pending.add(producer_id, key, value)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        for key, value in self._pending.end(producer_id, commit=commit):
            self._store(key, value)

    def has_pending(self, group_id: str) -> bool:
        return bool(self._pending) and self._pending.has_group(group_id)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return bool(self._pending) and self._pending.has(group_id, topic, partition)

    def pending_deletion(self, group_id: str) -> list[CoordinatorRecord]:
        """The records that delete the pending offsets of a group."""
        return [tombstone(*key) for key in self._pending.of_group(group_id)] if self._pending else []

    # -- tombstones --------------------------------------------------------

    def deletion(self, group_id: str) -> list[CoordinatorRecord]:
        """The records that delete everything a group committed."""
        return [
            tombstone(group_id, topic, partition)
            for topic, partitions in self.of_group(group_id).items()
            for partition in partitions
        ]

    def of_topics(self, names: Set[str]) -> Iterator[tuple[str, str, int, OffsetCommitValue]]:
        """What any group committed for these topics: group, topic, partition, offset."""
        for group_id, topics in self._groups.items():
            for topic in sorted(topics.keys() & names):
                for partition, value in topics[topic].items():
                    yield group_id, topic, partition, value

    def expired(
        self, group: Group, some: Iterable[Committed], *, now_ms: int, retention_ms: int
    ) -> list[CoordinatorRecord]:
        """Of some of its offsets, if they are still what they were, the records that delete those whose retention is
        over."""
        records: list[CoordinatorRecord] = []
        by_topic = {topic: list(found) for topic, found in groupby(some, itemgetter(0))}
        subscribed = group.subscribed_among(by_topic)
        for topic, found in by_topic.items():
            now: ByPartition = {} if topic in subscribed else self.of_topic(group.group_id, topic)
            records += [
                tombstone(group.group_id, topic, partition)
                for _, partition, value in found
                if now.get(partition) is value
                and _is_expired(group, value, now_ms=now_ms, retention_ms=retention_ms)
                and not self.is_pending(group.group_id, topic, partition)
            ]
        return records


def _is_expired(group: Group, value: OffsetCommitValue, *, now_ms: int, retention_ms: int) -> bool:
    base_ms = group.expiry_base_ms(value)
    if base_ms is None:
        return False
    if value.expire_timestamp >= 0:  # OffsetCommit up to version 4 could name its own retention
        return now_ms >= value.expire_timestamp
    return now_ms - base_ms >= retention_ms


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)
