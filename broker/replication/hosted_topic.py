"""A topic on this node: which of its partitions are led here, which are followed, and which cannot be opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.broker.config import TopicConfig
from tidemark.broker.metadata.image import TopicImage
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.broker.replication.unwritten_batches import UnwrittenBatches, UnwrittenOnNode
from tidemark.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tidemark.broker.replication.followed import Followed


@dataclass(slots=True, kw_only=True)
class HostedTopic:
    """A topic of the image, with what is here of it."""

    name: str
    topic_id: bytes
    config: TopicConfig
    image: TopicImage
    unwritten_on_node: UnwrittenOnNode
    partitions: dict[int, Partition] = field(default_factory=dict)  # which this node leads
    followed: dict[int, Followed] = field(default_factory=dict)
    offline: dict[int, str] = field(default_factory=dict)  # partitions whose log could not be opened, and why
    unwritten: dict[int, UnwrittenBatches] = field(default_factory=dict)  # of partitions that are or may be led here
    traffic: TopicTraffic = field(default_factory=TopicTraffic)

    def replica(self, index: int) -> Replica | None:
        return self.partitions.get(index) or self.followed.get(index)

    def replicas(self) -> Iterator[Replica]:
        yield from list(self.partitions.values())
        yield from list(self.followed.values())

    def unwritten_of(self, index: int) -> UnwrittenBatches:
        """It outlives a role: a batch that came too early for the next leader is missing when that one begins."""
        if index not in self.unwritten:
            self.unwritten[index] = UnwrittenBatches(self.unwritten_on_node)
        return self.unwritten[index]

    def why_not_led(self, index: int) -> ErrorCode:
        if index in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        exists = 0 <= index < len(self.image.partitions)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
