"""The group coordinator of this node: the shards that it leads, found by group id."""

from __future__ import annotations

import asyncio
from typing import Any

from tidemark.broker.coordination.coordinator import Coordinator
from tidemark.broker.core.deferred import awaited
from tidemark.broker.groups.classic.group import ClassicGroup
from tidemark.broker.groups.group_shard_host import GroupShardHost
from tidemark.broker.groups.member_memory import MemberMemory
from tidemark.broker.groups.recent_lookups import RecentLookups
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.internal import OFFSETS_TOPIC
from tidemark.broker.replication.partition import Partition
from tidemark.environment import monotonic, wall_clock_ms
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import EndTransaction


class GroupCoordinator(Coordinator[GroupShardHost]):
    TOPIC = OFFSETS_TOPIC
    COUNTERS = ("classic_rebalances", "consumer_rebalances")

    def __init__(self, **services: Any) -> None:
        super().__init__(**services)
        self.recent_lookups = RecentLookups()
        self.member_memory = MemberMemory(self._told_bytes)
        # Sessions must not end because the wall clock is set: it is read once, and monotonic time counts from there.
        self._clock_offset_ms = wall_clock_ms() - int(monotonic() * 1000)

    def now_ms(self) -> int:
        return int(monotonic() * 1000) + self._clock_offset_ms

    def _told_bytes(self) -> int:
        """By the members of classic groups, about themselves."""
        groups = (group for host in self for group in host.shard.groups.values())
        return sum(group.told_bytes for group in groups if isinstance(group, ClassicGroup))

    def _start_shard(self, partition: Partition) -> GroupShardHost:
        host = GroupShardHost(
            partition,
            config=self.settings.current,
            image=self.image,
            now_ms=self.now_ms,
            recent_lookups=self.recent_lookups.count,
        )
        host.load(then=self._loaded)
        return host

    def _loaded(self, host: GroupShardHost) -> None:
        """Topics may have been deleted while no coordinator was there to delete their offsets."""
        _forget_topics(host, host.shard.unknown_topics(self.image.topics))

    def follow(self, old: Image, new: Image) -> None:
        for host in self:
            host.shard.image = new
        super().follow(old, new)
        if old.topics is new.topics:
            return
        gone = {name for topic_id, name in old.topic_names.items() if topic_id not in new.topic_names}
        for host in self:
            if gone and not host.is_loading:
                _forget_topics(host, gone)

    async def expire(self) -> None:
        for host in self:
            if not host.is_loading:
                await awaited(host.start_all(host.shard.expire(self.now_ms())))
            await asyncio.sleep(0)

    # -- transactions ------------------------------------------------------

    def state_of(self, index: int) -> ErrorCode:
        host = self._shards.get(index)
        if host is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if host.is_loading else ErrorCode.NONE

    def end_transaction(self, index: int, marker: EndTransaction) -> None:
        """The marker is in the log of that partition."""
        self._shards[index].shard.end_transaction(marker.producer_id, commit=marker.commit)


def _forget_topics(host: GroupShardHost, names: set[str]) -> None:
    going_on = host.start_all(host.shard.forget_topics(names))
    if going_on is not None:
        going_on.then(lambda _: None)  # a failure is logged
