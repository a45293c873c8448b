"""One partition on this node: what may be appended, how far readers may see, and who waits for that to move."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Protocol

from broker.config import TopicConfig
from broker.errors import Refused
from broker.replication.flushing import GroupCommit
from broker.replication.validation import CONTROL, BatchRules
from protocol.errors import ErrorCode
from protocol.records import BatchHeader, EndTransaction, build_end_transaction, check_batch, read_header
from storage import (
    Appended,
    BatchTooLarge,
    FileSlice,
    Log,
    LogOffline,
    OffsetOutOfRange,
    ProducerState,
    StaleProducerEpoch,
    StorageError,
)

log = logging.getLogger(__name__)

EPOCH_PER_TRANSACTION: Final = 2  # the transaction.version from which on it is so

Reached = Callable[[StorageError | None], None]


class Watcher(Protocol):
    """Somebody who waits for records to become readable."""

    def readable(self, partition: Partition) -> None: ...


class Partition:
    __slots__ = (
        "_clean_at_ms",
        "_commit",
        "_waiting",
        "config",
        "flush_each",
        "high_watermark",
        "in_sync",
        "index",
        "leader_epoch",
        "log",
        "rules",
        "too_few_in_sync",
        "topic",
        "topic_id",
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
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self.log = log
        self.high_watermark = log.end_offset
        self.in_sync = 1  # replicas, this one included
        self.watchers: set[Watcher] = set()
        self._clean_at_ms = 0  # when everything was last seen on disk
        self._waiting: deque[tuple[int, Reached]] = deque()  # (offset that must be below the mark, whom to tell)
        self._commit = GroupCommit(log, executor, flushed=self._flushed, failed=self._flush_failed)
        self.configure(config)

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        self.rules = BatchRules(config)
        self.flush_each = config.flush_messages == 1
        self.unflushed_limit = config.flush_messages
        self.too_few_in_sync = self.in_sync < config.min_insync_replicas

    # -- appending ---------------------------------------------------------

    def append(self, records: memoryview, now_ms: int) -> Appended:
        """Check one batch, and append it as its leader. Whether it may be acknowledged yet: see `await_mark`."""
        header = check_batch(records)
        records, header = self.rules.admit(records, header, now_ms)
        appended = self.log.append(records, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if self.log.end_offset - self.log.recovery_point >= self.unflushed_limit:
            self._commit.request()
        if not self.flush_each:
            self._advance(self.log.end_offset)
        return appended

    def append_transactional(self, records: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """As `append`, for a batch (checked already) that the coordinator says belongs to an open transaction."""
        records, header = self.rules.admit(records, header, now_ms, CONTROL)
        return self._append_checked(records, header, now_ms)

    def append_marker(self, marker: EndTransaction, *, version: int, now_ms: int) -> Appended:
        """End a producer's transaction here."""
        check_marker(self.log.producer(marker.producer_id), marker, version=version)
        batch = build_end_transaction(marker, timestamp=now_ms)
        return self._append_checked(batch, read_header(batch), now_ms)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        state = self.log.producer(producer_id)
        return state is not None and state.epoch == epoch and state.current_txn_first_offset >= 0

    def append_internal(self, batch: bytearray, header: BatchHeader, now_ms: int) -> Appended:
        """Append a batch that the broker made itself, for one of its own topics: there is nothing to check but size."""
        if len(batch) > self.config.max_message_bytes:
            raise BatchTooLarge(f"{len(batch)} bytes are more than max.message.bytes of {self.topic} allows")
        return self._append_checked(batch, header, now_ms)

    def _append_checked(self, batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> Appended:
        appended = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if self.log.end_offset - self.log.recovery_point >= self.unflushed_limit:
            self._commit.request()
        if not self.flush_each:
            self._advance(self.log.end_offset)
        return appended

    def must_wait(self, last_offset: int) -> bool:
        return last_offset >= self.high_watermark

    def await_mark(self, last_offset: int, reached: Reached) -> None:
        """`reached(None)` once `last_offset` is below the high watermark, `reached(error)` if it never will be."""
        self._waiting.append((last_offset, reached))

    def flush_if_due(self, now_ms: int) -> None:
        """Sync, in the background, what has waited for flush.ms, and segments that are full: as Kafka does, so that a
        restart has less to check."""
        log = self.log
        if log.end_offset == log.recovery_point:
            self._clean_at_ms = now_ms
        elif not log.is_offline and (log.has_unflushed_segments or now_ms - self._clean_at_ms >= self.config.flush_ms):
            self._commit.request()

    def _flushed(self, end_offset: int) -> None:
        if self.flush_each:
            self._advance(end_offset)

    def _flush_failed(self, error: BaseException) -> None:
        # After a failed fsync the kernel may have dropped the pages: nothing unsynced here can be trusted any more.
        log.error("%s-%d: syncing failed, the partition goes offline: %s", self.topic, self.index, error)
        self.log.fail(f"syncing failed: {error}")
        while self._waiting:
            _, reached = self._waiting.popleft()
            reached(LogOffline(f"syncing failed: {error}"))

    def _advance(self, mark: int) -> None:
        if mark <= self.high_watermark:
            return
        self.high_watermark = mark
        waiting = self._waiting
        while waiting and waiting[0][0] < mark:
            waiting.popleft()[1](None)
        if self.watchers:
            for watcher in list(self.watchers):
                watcher.readable(self)

    # -- reading -----------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """The end of what a read_committed consumer may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def read_committed(self, *, offset: int, limit_bytes: int, at_least_one: bool) -> list[FileSlice]:
        """As `read`, for who wants nothing of undecided transactions."""
        stable = self.last_stable_offset
        if stable == self.high_watermark:
            return self.read(offset=offset, limit_bytes=limit_bytes, at_least_one=at_least_one)
        if stable <= offset <= self.log.end_offset:
            return _NOTHING
        return self.log.read(offset=offset, limit_bytes=limit_bytes, up_to=stable, at_least_one=at_least_one)

    def read(self, *, offset: int, limit_bytes: int, at_least_one: bool) -> list[FileSlice]:
        """What a consumer may see from `offset` on: nothing at or above the high watermark."""
        mark = self.high_watermark
        if mark <= offset <= self.log.end_offset:
            return _NOTHING  # written, perhaps, but not committed: there will be something soon
        if offset > mark:
            raise OffsetOutOfRange(offset=offset, start=self.log.start_offset, end=mark)
        return self.log.read(
            offset=offset,
            limit_bytes=limit_bytes,
            up_to=None if mark == self.log.end_offset else mark,
            at_least_one=at_least_one,
        )

    def wake_all(self) -> None:
        """The partition is going away or the node stops: nobody shall wait for more."""
        for watcher in list(self.watchers):
            watcher.readable(self)

    def close_waiting(self, error: StorageError) -> None:
        while self._waiting:
            self._waiting.popleft()[1](error)


def check_marker(state: ProducerState | None, marker: EndTransaction, *, version: int) -> None:
    """KIP-890: the marker of a transaction has a later epoch than its records. One with their epoch is of the last
    transaction, and late. (Without an open transaction it is a repetition, and does no harm.)"""
    if (
        version >= EPOCH_PER_TRANSACTION
        and state is not None
        and marker.producer_epoch == state.epoch
        and state.current_txn_first_offset >= 0
    ):
        raise StaleProducerEpoch(f"producer {marker.producer_id} has begun a transaction since this marker's")


class InternalPartition(Partition):
    """A partition of a topic that only the broker itself writes to."""

    __slots__ = ()

    def append(self, records: memoryview, now_ms: int) -> Appended:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic} is internal: clients may not write to it.")


_NOTHING: Final[list[Any]] = []
