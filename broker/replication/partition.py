"""A partition that this node leads: what may be appended, when it is committed, and what waits for that.

One object lives for one leadership: a node that becomes leader again makes a new one, so that nothing of an earlier
epoch (a waiting acknowledgement, a coordinator's state) can be taken for the present one's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, Protocol

from tidemark.broker.config import TopicConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.ordered_set import OrderedSet
from tidemark.broker.replication.ended_transactions import EndedTransactions
from tidemark.broker.replication.examination import Examination, MustWait, Placed
from tidemark.broker.replication.leadership import OUTSIDE_SECONDS_MAX, Leadership, Proposal
from tidemark.broker.replication.replica import Replica, Watcher
from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.broker.replication.unwritten_batches import UnwrittenBatches
from tidemark.broker.replication.validation import CONTROL, TRANSACTIONAL
from tidemark.broker.replication.writers import UNTIMED_BYTES_MAX, Writers
from tidemark.environment import monotonic
from tidemark.portable import sleeps
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import BatchHeader, EndTransaction, build_end_transaction, check_batch, read_header
from tidemark.storage import (
    Appended,
    BatchTooLarge,
    Log,
    LogOffline,
    OutOfOrderSequence,
    PendingAppend,
    ProducerState,
    StaleProducerEpoch,
    WriteFailed,
)

__all__ = ["InternalPartition", "Partition", "Reached", "ReplicaWatcher", "Watcher", "check_marker"]

log = logging.getLogger(__name__)

LAG_SECONDS_MAX: Final = 30.0  # Kafka's default of replica.lag.time.max.ms
EPOCH_PER_TRANSACTION: Final = 2  # the transaction.version from which on it is so

PLAIN: Final = CONTROL | TRANSACTIONAL  # attributes that a batch of no transaction does not have
_DISK_TROUBLE: Final = (WriteFailed, LogOffline, OSError)
_UNAPPENDED: Final = (*_DISK_TROUBLE, OutOfOrderSequence)
Reached = Callable[[Exception | None], None]


class Turn(Protocol):
    """What is done with a batch when everything before it is done."""

    def begin(self) -> PendingAppend | None:
        """Appends it, or says what is to be written first; then `finish` is called."""

    def finish(self, pending: PendingAppend) -> None: ...

    def refuse(self) -> None:
        """Instead of `begin`: the leadership is over."""

    @property
    def header(self) -> BatchHeader | None:
        """Of what a producer has sent."""


class QueuedAppend:
    """An append that waits for those before it, or for the disk."""

    __slots__ = ("_examination", "is_writing", "turn")

    def __init__(self, examination: Examination | None, turn: Turn) -> None:
        self._examination = examination  # None: there is nothing to examine
        self.turn = turn
        self.is_writing = False

    @property
    def is_examined(self) -> bool:
        return self._examination is None or self._examination.is_done


class ReplicaWatcher(Protocol):
    """A follower's fetch session, which hears of every append, committed or not."""

    def appended(self, partition: Partition) -> None: ...

    def high_watermark_advanced(self, partition: Partition) -> None: ...

    def ended(self, partition: Partition) -> None: ...


class Partition(Replica):
    __slots__ = (
        "_counted_end",
        "_flush_waiting",
        "_flushed_end",
        "_lag_seconds_max",
        "_low_waiting",
        "_over",
        "_unwritten",
        "_update_timer",
        "_waiting",
        "_when_written",
        "append_queue",
        "commits_alone",
        "ended_transactions",
        "fails",
        "leadership",
        "replica_watchers",
        "too_few_in_sync",
        "writers",
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
        leadership: Leadership | None = None,
        lag_seconds_max: Callable[[], float] = lambda: LAG_SECONDS_MAX,
        fails: Callable[[Partition, Exception], None] = lambda _partition, _error: None,
        writers: Writers | None = None,
        traffic: TopicTraffic | None = None,
        unwritten: UnwrittenBatches | None = None,
    ) -> None:
        """`lag_seconds_max` says what `replica.lag.time.max.ms` is on this node; `fails` is called when the disk does
        not do what it should; `writers` are those of the log's directory; `unwritten` is what an earlier role here
        has left of that."""
        self.fails = fails
        self.writers = writers or Writers()
        self._lag_seconds_max = lag_seconds_max
        self.leadership = leadership or _sole(leader_epoch, log.end_offset)
        self.replica_watchers: OrderedSet[ReplicaWatcher] = OrderedSet()
        # (offset that must be below the high watermark, what to call, whether to call when too few are in sync)
        self._waiting: deque[tuple[int, Reached, bool]] = deque()
        self._flush_waiting: deque[tuple[int, Reached]] = deque()
        self._update_timer: asyncio.TimerHandle | None = None
        self._low_waiting: list[tuple[int, Reached]] = []
        self._flushed_end = log.recovery_point
        self._unwritten = UnwrittenBatches() if unwritten is None else unwritten
        self.ended_transactions = EndedTransactions()
        self._over: Exception | None = None  # why this leadership has ended
        self._counted_end = log.end_offset  # records up to here are in `traffic`
        self.append_queue: deque[QueuedAppend] | None = None  # see `append_queues`; None when nothing waits
        self._when_written: list[asyncio.Future[Exception | None]] = []
        if high_watermark is None and config.flush_messages == 1:
            high_watermark = log.recovery_point
        super().__init__(
            topic=topic,
            topic_id=topic_id,
            index=index,
            leader_epoch=leader_epoch,
            log=log,
            config=config,
            executor=executor,
            high_watermark=high_watermark,
            traffic=traffic,
        )

    def configure(self, config: TopicConfig) -> None:
        super().configure(config)
        self._set_flags()
        if self.flush_each and self._flushed_end < self.log.end_offset:
            self._commit.request()  # what an earlier life left unsynced, or this one did before it had to

    def _set_flags(self) -> None:
        """What follows from settings and in-sync set, as plain flags for every append to test."""
        self.too_few_in_sync = self.leadership.too_few(self.config.min_insync_replicas)
        self.commits_alone = self.leadership.is_alone and not self.flush_each

    # -- appending ---------------------------------------------------------

    def append(
        self, records: memoryview, now_ms: int, at_once: bool = True, *, at_once_bytes_max: int = sys.maxsize
    ) -> Appended:
        """Check one batch, and append it as its leader. `await_high_watermark` says when it may be acknowledged.
        MustWait: it has to be examined first (rather than at once), or others are before it, or the disk is slow, or it
        is larger than what the caller wants written at once."""
        header = check_batch(records)
        records, header = self.rules.validated(records, header, now_ms, PLAIN, at_once)
        if self.must_queue(len(records), at_once_bytes_max):
            raise MustWait(Examination.passed(self.rules, records, header, now_ms))
        return self.append_checked(records, header, now_ms)

    def validated_transactional(
        self, records: memoryview, header: BatchHeader, now_ms: int, at_once: bool = True
    ) -> Placed:
        """What `append` does before it appends, for a batch that belongs to an open transaction, as the coordinator
        says."""
        records, header = self.rules.validated(records, header, now_ms, CONTROL, at_once)
        if self.must_queue(len(records)):
            raise MustWait(Examination.passed(self.rules, records, header, now_ms))
        return records, header

    def must_queue(self, size: int, at_once_bytes_max: int = sys.maxsize) -> bool:
        """Whether others are before a batch of this size, or it is not to be written at once."""
        return self.append_queue is not None or self._is_for_writers(size, at_once_bytes_max)

    def _is_for_writers(self, size: int, at_once_bytes_max: int) -> bool:
        """Small batches are written at once also while the disk is slow, unless other files are to be written, too: the
        end of an index may have to be read from the disk first."""
        if_slow = self.writers.at_once_bytes_max
        return size > min(if_slow, at_once_bytes_max) or (if_slow < sys.maxsize and self.log.has_more_to_write(size))

    def append_marker(self, marker: EndTransaction, *, version: int, now_ms: int) -> Appended:
        """End a producer's transaction here. Where batches wait for their turn, so must the marker: they may be part of
        the transaction that it ends, or of one that it is too late for."""
        check_marker(self.log.producer(marker.producer_id), marker, version=version)
        self._check_in_sync()
        batch = build_end_transaction(marker, timestamp=now_ms)
        appended = self.append_checked(batch, read_header(batch), now_ms)
        self.ended_transactions.add(marker.producer_id)
        return appended

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        state = self.log.producer(producer_id)
        return state is not None and state.epoch == epoch and state.current_txn_first_offset >= 0

    def append_internal(self, batch: bytearray, header: BatchHeader, now_ms: int) -> Appended:
        """Append a batch that the broker made itself, for one of its own topics: as a client with acks=all would."""
        if len(batch) > self.config.max_message_bytes:
            raise BatchTooLarge(f"{len(batch)} bytes are more than max.message.bytes of {self.topic} allows")
        self._check_in_sync()
        return self.append_checked(batch, header, now_ms)

    def _check_in_sync(self) -> None:
        if self._over is not None:
            raise self._over
        if self.too_few_in_sync:
            raise Refused(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.topic}-{self.index} has too few replicas in sync.")

    def append_checked(self, batch: bytearray | memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Append a batch whose turn it is, and in which everything is as it should be."""
        if self._unwritten:
            self.check_first(header)
        is_timed = header.batch_length > UNTIMED_BYTES_MAX
        begun, slept = (monotonic(), sleeps()) if is_timed else (0.0, 0)
        try:
            appended = self.log.append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except _UNAPPENDED as error:
            self._note_failure(header, error)
            raise
        if is_timed:
            self.writers.note_since(begun, slept, size=len(batch))
        self._has_appended(header)
        return appended

    def begin_append(
        self, batch: memoryview, header: BatchHeader, now_ms: int, *, at_once_bytes_max: int = sys.maxsize
    ) -> Appended | PendingAppend:
        """As `append_checked`; but if the disk is slow, or the batch is larger than what the caller wants written at
        once, it is to be given to the writers before `finish_append`."""
        if not self._is_for_writers(len(batch), at_once_bytes_max):
            return self.append_checked(batch, header, now_ms)
        if self._unwritten:
            self.check_first(header)
        try:
            return self.log.begin_append(batch, header, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except _UNAPPENDED as error:
            self._note_failure(header, error)
            raise

    def finish_append(self, pending: PendingAppend) -> Appended:
        try:
            appended = self.log.finish_append(pending)
        except _DISK_TROUBLE as error:
            self._note_failure(pending.header, error)
            raise
        finally:
            self._tell_written(pending.error)
        if self._over is None:
            self._has_appended(pending.header)
        return appended

    def written(self) -> asyncio.Future[Exception | None]:
        """Done when the batch that a thread writes is in the log, or is not after all: then the result says why."""
        assert self.log.is_appending, "nothing is being written"
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._when_written.append(done)
        return done

    def _tell_written(self, error: Exception | None) -> None:
        waiting, self._when_written = self._when_written, []
        for done in waiting:
            if not done.done():
                done.set_result(error)

    def check_first(self, header: BatchHeader) -> None:
        """A producer that the log does not know may begin at any sequence number; but not behind what is missing."""
        if self.log.producer(header.producer_id) is None:
            self._unwritten.check(header)

    def note_refused(self, header: BatchHeader, code: ErrorCode) -> None:
        """This batch is to be sent again, and what its producer has sent behind it is to hear the same."""
        self._unwritten.add(header, code)

    def _note_failure(self, header: BatchHeader, error: Exception) -> None:
        """Raises another error, if that is the one to tell."""
        if isinstance(error, OutOfOrderSequence):
            self._unwritten.check(header)
            return
        self._unwritten.add(header, ErrorCode.KAFKA_STORAGE_ERROR)
        if self._over is None:
            self.fails(self, error)

    def _has_appended(self, header: BatchHeader) -> None:
        """There is more in the log."""
        self.traffic.bytes_in += header.size
        if self._unwritten:
            self._unwritten.forget(header.producer_id)
        if self.log.end_offset - self.log.recovery_point >= self.unflushed_limit:
            self._commit.request()
        if self.commits_alone:
            self._advance(self.log.end_offset)
        else:
            self._wake_followers()

    def _wake_followers(self) -> None:
        """There is more in the log: followers fetch it, and the high watermark advances when they have it."""
        for follower in self.leadership.followers.values():
            follower.fell_behind()
        self._notify_appended()
        if not self.flush_each and len(self.leadership.isr) == 1:
            self.update_high_watermark()

    def _notify_appended(self) -> None:
        """One session that fails must not leave the others asleep, nor harm the producer whose append this is."""
        for watcher in self.replica_watchers:
            try:
                watcher.appended(self)
            except Exception:
                self._watcher_failed()

    def _watcher_failed(self) -> None:
        log.exception("%s-%d: a follower's session failed", self.topic, self.index)

    def count_records(self) -> None:
        """Bring `traffic` up to date: how many records came needs no counting, as each has an offset."""
        end_offset = self.log.end_offset
        self.traffic.records_in += end_offset - self._counted_end
        self._counted_end = end_offset

    # -- acknowledging -----------------------------------------------------

    def must_wait(self, last_offset: int) -> bool:
        return last_offset >= self.high_watermark

    def await_high_watermark(self, last_offset: int, reached: Reached, *, fails_below_min_isr: bool = False) -> None:
        """`reached(None)` once `last_offset` is below the high watermark, `reached(error)` if it never will be; and,
        with `fails_below_min_isr`, when there are too few replicas in sync to get there soon."""
        if last_offset < self.high_watermark:
            reached(None)
        elif self._over is not None:
            reached(self._over)
        else:
            self._waiting.append((last_offset, reached, fails_below_min_isr))

    def await_flush(self, last_offset: int, reached: Reached) -> None:
        """As `await_high_watermark`, but it need only be on this disk."""
        if last_offset < self._flushed_end:
            reached(None)
        elif self._over is not None:
            reached(self._over)
        else:
            self._flush_waiting.append((last_offset, reached))

    def _flushed(self, end_offset: int) -> None:
        self._flushed_end = end_offset
        waiting = self._flush_waiting
        while waiting and waiting[0][0] < end_offset:
            _notify(waiting.popleft()[1], None)
        if self.flush_each:
            self.update_high_watermark()

    def _flush_failed(self, error: BaseException) -> None:
        super()._flush_failed(error)
        self.close_waiting(LogOffline(f"syncing failed: {error}"))
        if self._over is None:
            self.fails(self, LogOffline(f"syncing failed: {error}"))

    def _flush_stalled(self) -> None:
        """A disk that hangs says nothing: producers would wait for it, though the disks of others have what they sent.
        Where all disks are slow, the leadership stays."""
        if self.flush_each and self._over is None and self.leadership.another_has_more_than(self._flushed_end):
            self.fails(self, LogOffline("its disk does not finish a sync"))

    def update_high_watermark(self, *, now: float | None = None) -> None:
        """A replica has more than before: advance the high watermark as far as every replica that counts has got."""
        if self.too_few_in_sync:
            return  # KIP-966: or a member of a set that is too small could be needed to recover what it never had
        own_end = min(self._flushed_end, self.log.end_offset) if self.flush_each else self.log.end_offset
        now = monotonic() if now is None else now
        self._advance(self.leadership.high_watermark(own_end, now=now, lag_max=self._lag_seconds_max()))
        if self.leadership.is_held_up and self._update_timer is None:
            # No follower may fetch again: those in sync have everything, and the other may be gone.
            seconds = OUTSIDE_SECONDS_MAX + 0.01
            self._update_timer = asyncio.get_running_loop().call_later(seconds, self._update_again)

    def _update_again(self) -> None:
        self._update_timer = None
        if self._over is None:
            self.update_high_watermark()

    def _advance(self, high_watermark: int) -> None:
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            _notify(waiting.popleft()[1], None)
        if self.watchers:
            self.wake_all()
        for watcher in self.replica_watchers:
            try:
                watcher.high_watermark_advanced(self)
            except Exception:
                self._watcher_failed()

    # -- deleting ----------------------------------------------------------

    def delete_before(self, offset: int) -> None:
        """DeleteRecords. Followers hear of it at once, and do as much."""
        self.log.delete_before(offset, later=True)
        self._notify_appended()

    @property
    def low_watermark(self) -> int:
        """No live replica has anything before it (DeleteRecords)."""
        return self.leadership.low_watermark(self.log.start_offset)

    def await_low_watermark(self, offset: int, reached: Reached) -> None:
        """`reached(None)` once it is at `offset`, `reached(error)` if this leadership ends before."""
        if self.low_watermark >= offset:
            reached(None)
        elif self._over is not None:
            reached(self._over)
        else:
            self._low_waiting.append((offset, reached))

    def update_low_watermark(self) -> None:
        """A follower has deleted, or is gone."""
        if self._low_waiting:
            low_watermark = self.low_watermark
            done = [reached for offset, reached in self._low_waiting if offset <= low_watermark]
            self._low_waiting = [each for each in self._low_waiting if each[0] > low_watermark]
            for reached in done:
                _notify(reached, None)

    # -- the in-sync set ---------------------------------------------------

    def apply_isr(self, *, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...] | None = None) -> None:
        """The in-sync set, and perhaps the replicas, as the controller has committed them."""
        if replicas is not None:
            self.leadership.reassigned(replicas=replicas, now=monotonic())
        if self.leadership.apply_isr(isr=isr, partition_epoch=partition_epoch):
            self._isr_changed()

    def refused(self, proposal: Proposal) -> None:
        self.leadership.refused(proposal)
        self._isr_changed()

    def _isr_changed(self) -> None:
        self._set_flags()
        self.update_high_watermark()
        if self.too_few_in_sync:
            self.fail_acks(
                Refused(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"{self.topic}-{self.index}: the record is written, but too few replicas are in sync.",
                )
            )

    def fail_acks(self, error: Exception) -> None:
        """Acknowledgements that are waited for will not come soon, if at all."""
        failing = [entry for entry in self._waiting if entry[2]]
        if failing:
            self._waiting = deque(entry for entry in self._waiting if not entry[2])
            for _, reached, _ in failing:
                _notify(reached, error)

    # -- the end -----------------------------------------------------------

    def resign(self, error: Exception) -> None:
        """This leadership is over: every wait ends, and readers look for another leader."""
        self._over = error
        self._note_queued()
        self.count_records()
        self.refuse_queued()
        self.close_waiting(error)
        self.wake_all()
        for watcher in list(self.replica_watchers):
            try:
                watcher.ended(self)
            except Exception:
                self._watcher_failed()
        self.replica_watchers.clear()

    def _note_queued(self) -> None:
        """What waits for its turn is refused, at once or soon. What its producer has sent behind it may come before,
        and to the next leadership, which is to let it wait as if that had been said already. (One that is being written
        may be in the log in the end: then its number is not missing.)"""
        for queued in self.append_queue or ():
            if (header := queued.turn.header) is not None:
                self._unwritten.add(header, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refuse_queued(self) -> None:
        """Whatever waits hears that its turn will not come, rather than wait for a disk that may hang; but not while a
        thread is at work on it: what is being written may be in the log in the end, and what is examined is in use."""
        stays, goes = list[QueuedAppend](), list[QueuedAppend]()
        for queued in self.append_queue or ():
            (stays if queued.is_writing or not queued.is_examined else goes).append(queued)
        self.append_queue = deque(stays) or None
        for queued in goes:
            try:
                queued.turn.refuse()
            except Exception:
                log.exception("%s-%d: an append that waited was not refused", self.topic, self.index)

    @property
    def is_over(self) -> bool:
        return self._over is not None

    def close_waiting(self, error: Exception) -> None:
        while self._waiting:
            _notify(self._waiting.popleft()[1], error)
        while self._flush_waiting:
            _notify(self._flush_waiting.popleft()[1], error)
        low_waiting, self._low_waiting = self._low_waiting, []
        for _, reached in low_waiting:
            _notify(reached, error)


def _notify(reached: Reached, error: Exception | None) -> None:
    """One waiter that fails must not stop the next, nor the append that woke them."""
    try:
        reached(error)
    except Exception:
        log.exception("what waited for a record to be committed failed")


def _sole(leader_epoch: int, end_offset: int) -> Leadership:
    return Leadership(
        node_id=0,
        leader_epoch=leader_epoch,
        partition_epoch=0,
        replicas=(0,),
        isr=(0,),
        start_offset=end_offset,
        now=0.0,
    )


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

    def append(
        self, records: memoryview, now_ms: int, at_once: bool = True, *, at_once_bytes_max: int = sys.maxsize
    ) -> Appended:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic} is internal: clients may not write to it.")

    def validated_transactional(
        self, records: memoryview, header: BatchHeader, now_ms: int, at_once: bool = True
    ) -> Placed:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic} is internal: clients may not write to it.")
