"""The group coordinator of this node: the shards that it leads, found by group id."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from broker.config import BrokerConfig
from broker.groups.hosted import HostedShard
from broker.groups.naming import partition_for
from broker.metadata.image import Image
from broker.metadata.internal import OFFSETS_TOPIC
from broker.replication.replicas import Replicas
from broker.settings import Settings
from broker.topic_creation import TopicCreation
from protocol.errors import ErrorCode
from protocol.records import EndTransaction

MEMO_MAX: Final = 100_000  # group ids whose shard is remembered, so that it need not be computed


class Groups:
    def __init__(self, *, node_id: int, settings: Settings, replicas: Replicas, creation: TopicCreation) -> None:
        self.settings = settings
        self.image = Image()
        self._node_id = node_id
        self._replicas = replicas
        self._creation = creation
        self._shards: dict[int, HostedShard] = {}
        self._memo: dict[str, HostedShard] = {}
        self._closed = False
        # Sessions must not end because somebody sets the clock: we take the time once, and count from there.
        self._clock_offset_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self._clock_offset_ms

    # -- looking up --------------------------------------------------------

    def find(self, group_id: str) -> HostedShard | ErrorCode:
        """The shard that holds a group, or why not."""
        if self._replicas.lease_until is not None and not self._replicas.is_leased:
            return ErrorCode.NOT_COORDINATOR  # another broker may be by now
        found = self._memo.get(group_id)
        return found if found is not None else self._find(group_id)

    def _find(self, group_id: str) -> HostedShard | ErrorCode:
        topic = self.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return ErrorCode.NOT_COORDINATOR
        hosted = self._shards.get(partition_for(group_id, partitions=len(topic.partitions)))
        if hosted is None:
            return ErrorCode.NOT_COORDINATOR
        if hosted.is_loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if len(self._memo) >= MEMO_MAX:
            self._memo.clear()
        self._memo[group_id] = hosted
        return hosted

    def __iter__(self) -> Iterator[HostedShard]:
        return iter(list(self._shards.values()))

    async def leader_of(self, group_id: str) -> int:
        """The broker that coordinates a group, or -1. The offsets topic is created when first asked for."""
        if OFFSETS_TOPIC not in self.image.topics:
            await self._creation.create_automatically(OFFSETS_TOPIC)
        partitions = self.image.topics[OFFSETS_TOPIC].partitions
        return partitions[partition_for(group_id, partitions=len(partitions))].leader

    # -- transactions ------------------------------------------------------

    def partition_of(self, group_id: str) -> int | None:
        """Which partition of the offsets topic a group's commits go to."""
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else partition_for(group_id, partitions=len(topic.partitions))

    def state_of(self, index: int) -> ErrorCode:
        hosted = self._shards.get(index)
        if hosted is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if hosted.is_loading else ErrorCode.NONE

    def end_transaction(self, index: int, marker: EndTransaction) -> None:
        """The marker is in the log of that partition."""
        self._shards[index].shard.end_transaction(marker.producer_id, commit=marker.commit)

    # -- following the metadata --------------------------------------------

    def follow(self, old: Image, new: Image) -> None:
        self.image = new
        for hosted in self._shards.values():
            hosted.shard.image = new
        if old.topics is new.topics or self._closed:
            return
        self.host()
        gone = {name for topic_id, name in old.topic_names.items() if topic_id not in new.topic_names}
        for hosted in self:
            if gone and not hosted.is_loading:
                hosted.run_all(hosted.shard.forget_topics(gone))

    def host(self) -> None:
        """Be the coordinator of what we lead, and of nothing else."""
        image = self.image
        topic = image.topics.get(OFFSETS_TOPIC)
        hosted_topic = self._replicas.topics.get(OFFSETS_TOPIC)
        led = {
            index: hosted_topic.partitions[index]
            for index, partition in enumerate(topic.partitions if topic else ())
            if partition.leader == self._node_id and hosted_topic and index in hosted_topic.partitions
        }
        for index in [index for index, each in self._shards.items() if led.get(index) is not each.partition]:
            self._memo.clear()
            self._shards.pop(index).close()
        for index, partition in led.items():
            if index not in self._shards:
                hosted = HostedShard(partition, config=self.settings.current, image=image, now_ms=self.now_ms)
                self._shards[index] = hosted
                hosted.load(then=self._loaded)

    def _loaded(self, hosted: HostedShard) -> None:
        """Topics may have been deleted before their offsets were."""
        hosted.run_all(hosted.shard.forget_topics(hosted.shard.unknown_topics(self.image.topics)))

    def reconfigure(self, config: BrokerConfig, _image: Image) -> None:
        for hosted in self:
            hosted.shard.config = config

    # -- in the background -------------------------------------------------

    async def expire(self) -> None:
        for hosted in self:
            if not hosted.is_loading:
                hosted.run_all(hosted.shard.expire(self.now_ms()))
            await asyncio.sleep(0)

    def close(self) -> None:
        self._closed = True
        self._memo.clear()
        for hosted in self:
            hosted.close()
        self._shards.clear()
