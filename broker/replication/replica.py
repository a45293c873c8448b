"""One replica on this node, led or followed: its log, how far readers may see, and the readers that wait for more."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from tidemark.broker.config import TopicConfig
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.replication.flushing import GroupCommit
from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.broker.replication.validation import BatchRules
from tidemark.storage import FileSlice, Log, OffsetOutOfRange

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """A reader that waits for records to become readable."""

    def readable(self, partition: Replica) -> None: ...


class Replica:
    __slots__ = (
        "_clean_at_ms",
        "_commit",
        "config",
        "executor",
        "flush_each",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "rules",
        "topic",
        "topic_id",
        "traffic",
        "unflushed_limit",
        "watchers",
    )

    def __init__(
        self,
        *,
        topic: str,
        topic_id: bytes,
        index: int,
        leader_epoch: int,
        log: Log,
        config: TopicConfig,
        executor: Executor,
        high_watermark: int | None = None,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """Without a `high_watermark` everything in the log is committed. `traffic`: of the topic on this node."""
        self.traffic = traffic or TopicTraffic()
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = log
        end = log.end_offset
        self.high_watermark = end if high_watermark is None else max(log.start_offset, min(high_watermark, end))
        self.watchers: OrderedSet[Watcher] = OrderedSet()
        self.executor = executor  # for work on the log that waits for the disk
        self._clean_at_ms = 0  # when everything was last seen on disk
        self._commit = GroupCommit(
            log,
            executor,
            flushed=self._flushed,
            failed=self._flush_failed,
            stalled=self._flush_stalled,
            is_held=lambda: self.is_truncating,
            traffic=self.traffic,
        )
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.rules = BatchRules(config)
        self.flush_each = config.flush_messages == 1
        self.unflushed_limit = config.flush_messages

    def use_threads(self, executor: Executor) -> None:
        """The log is in another directory, whose disk has its own."""
        self.executor = executor
        self._commit.use_threads(executor)

    @property
    def is_truncating(self) -> bool:
        """Whether another thread is at work on the log, which is not to be touched until it is done."""
        return False

    # -- flushing ----------------------------------------------------------

    def _flush_stalled(self) -> None:
        """The disk has been at a sync for seconds."""

    def flush_if_due(self, now_ms: int) -> None:
        """Sync, in the background, what has waited for flush.ms, and segments that are full: as Kafka does, so that a
        restart has less to check."""
        log = self.log
        if log.end_offset == log.recovery_point:
            self._clean_at_ms = now_ms
        elif not log.is_offline and (log.has_unflushed_segments or now_ms - self._clean_at_ms >= self.config.flush_ms):
            self._commit.request()

    def _flushed(self, end_offset: int) -> None:
        """Everything before `end_offset` is on disk."""

    def _flush_failed(self, error: BaseException) -> None:
        if self.log.is_offline:
            return  # deleted meanwhile, or known already
        # After a failed fsync the kernel may have dropped the pages: nothing unsynced here can be trusted any more.
        log.error("%s-%d: syncing failed, the partition goes offline: %s", self.topic, self.index, error)
        self.log.fail(f"syncing failed: {error}")

    # -- reading -----------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def read_committed(
        self, *, offset: int, limit_bytes: int, at_least_one: bool, wait: bool = True
    ) -> list[FileSlice]:
        """As `read`, without what belongs to undecided transactions."""
        stable = self.last_stable_offset
        if stable == self.high_watermark:
            return self.read(offset=offset, limit_bytes=limit_bytes, at_least_one=at_least_one, wait=wait)
        if stable <= offset <= self.log.end_offset:
            return _NOTHING
        return self.log.read(offset=offset, limit_bytes=limit_bytes, up_to=stable, at_least_one=at_least_one, wait=wait)

    def read(self, *, offset: int, limit_bytes: int, at_least_one: bool, wait: bool = True) -> list[FileSlice]:
        """What a consumer may see from `offset` on: nothing at or above the high watermark. Without `wait`, ColdRead
        rather than a wait for the disk."""
        high_watermark = self.high_watermark
        if high_watermark <= offset <= self.log.end_offset:
            return _NOTHING  # written, perhaps, but not committed: there will be something soon
        if offset > high_watermark:
            raise OffsetOutOfRange(offset=offset, start=self.log.start_offset, end=high_watermark)
        return self.log.read(
            offset=offset,
            limit_bytes=limit_bytes,
            up_to=None if high_watermark == self.log.end_offset else high_watermark,
            at_least_one=at_least_one,
            wait=wait,
        )

    def wake_all(self) -> None:
        """There is more to read, or the replica's role ends, or the node stops. One watcher that fails must not keep
        the next asleep, nor harm the producer whose append woke them."""
        for watcher in list(self.watchers):
            try:
                watcher.readable(self)
            except Exception:
                log.exception("%s-%d: what waited for records failed", self.topic, self.index)


_NOTHING: Final[list[Any]] = []
