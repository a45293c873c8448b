"""The records of a commit: the part that OffsetCommit and TxnOffsetCommit have in common."""

from __future__ import annotations

from typing import Final

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.broker.groups.records import OffsetCommitKey, OffsetCommitValue
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.metadata.image import TopicImage
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.offset_commit import OffsetCommitRequestPartition
from tidemark.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition

RECORD_VERSION: Final = 4  # of OffsetCommitValue: what Kafka 4 writes
EXPIRING_RECORD_VERSION: Final = 1  # the only one that can say when an offset expires
NO_EXPIRY: Final = -1


class OffsetRecords:
    """Collects one record for each partition whose offset may be committed."""

    __slots__ = ("_expire_ms", "_group_id", "_metadata_max", "_now_ms", "_version", "records")

    def __init__(self, shard: GroupShard, group_id: str, *, now_ms: int, expire_ms: int = NO_EXPIRY) -> None:
        self.records: list[CoordinatorRecord] = []
        self._group_id = group_id
        self._now_ms = now_ms
        self._expire_ms = expire_ms
        self._version = RECORD_VERSION if expire_ms < 0 else EXPIRING_RECORD_VERSION
        self._metadata_max = shard.config.offset_metadata_max_bytes

    def add(
        self,
        topic: TopicImage | None,
        partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        *,
        missing: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        refused: ErrorCode = ErrorCode.NONE,
    ) -> ErrorCode:
        """What the response says of this partition; with NONE, its record was added."""
        index = partition.partition_index
        if topic is None or not 0 <= index < len(topic.partitions):
            return missing
        metadata = partition.committed_metadata or ""
        if len(metadata) > self._metadata_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if refused:
            return refused
        value = OffsetCommitValue(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            commit_timestamp=self._now_ms,
            expire_timestamp=self._expire_ms,
            topic_id=topic.topic_id,
        )
        key = OffsetCommitKey(group=self._group_id, topic=topic.name, partition=index)
        self.records.append(CoordinatorRecord(key, value, self._version))
        return ErrorCode.NONE
