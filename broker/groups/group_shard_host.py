"""Runs the group shard of one partition: sends answers that waited, and fires timers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemark.broker.config import BrokerConfig
from tidemark.broker.coordination.shard_host import ShardHost
from tidemark.broker.groups.consumer import group as _consumer_group  # noqa: F401  its records must be known before a log is read
from tidemark.broker.groups.records import decode
from tidemark.broker.groups.shard import GroupShard
from tidemark.broker.groups.timers import TimerQueue
from tidemark.broker.metadata.image import Image
from tidemark.broker.replication.partition import Partition
from tidemark.environment import new_random


class GroupShardHost(ShardHost):
    DECODE = decode
    shard: GroupShard

    def __init__(
        self,
        partition: Partition,
        *,
        config: BrokerConfig,
        image: Image,
        now_ms: Callable[[], int],
        recent_lookups: Callable[[str, int], int],
    ) -> None:
        super().__init__(partition, now_ms=now_ms)
        self.shard = GroupShard(
            config=config,
            image=image,
            random=new_random(),
            timers=TimerQueue(self._set_timer),
            recent_lookups=recent_lookups,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    def load(self, *, then: Callable[[GroupShardHost], None]) -> None:
        piece_bytes = self.shard.config.offsets_load_buffer_size
        self._load(piece_bytes=piece_bytes, transactions=self.shard, then=lambda: then(self))

    def holds(self, key: str) -> bool:
        return key in self.shard.groups

    def _release_effects(self) -> None:
        if not self.shard.replies:
            return
        replies, self.shard.replies = self.shard.replies, []
        for deferred, response in replies:
            if self._written >= self.partition.high_watermark:
                self._when_committed(response, None).then(deferred.resolve)
            else:
                deferred.resolve(response)

    @property
    def is_committed(self) -> bool:
        """Whether all records that the state was built from are committed."""
        return self._written < self.partition.high_watermark

    def when_committed(self, reached: Callable[[Exception | None], None]) -> None:
        self.partition.await_high_watermark(self._written, reached, fails_below_min_isr=True)

    # -- time --------------------------------------------------------------

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None and self._timer_at_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        # A millisecond late rather than early: a timer that fires early finds nothing due.
        self._timer = self._loop.call_later(max(at_ms + 1 - self.now_ms(), 0) / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        going_on = self.start_all(self.shard.wake(self.now_ms()))
        if going_on is None:
            self._await_next()
        else:
            going_on.then(lambda _: self._await_next())

    def _await_next(self) -> None:
        next_ms = self.shard.timers.next_ms
        if next_ms is not None and not self._closed:
            self._set_timer(next_ms)

    def close(self) -> None:
        super().close()
        if self._timer is not None:
            self._timer.cancel()
        self.shard.close()
        self._release_effects()
