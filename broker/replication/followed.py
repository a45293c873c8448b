"""A partition that this node follows: what it appends from its leader, and where it truncates to agree with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial

from tidemark.broker.config import TopicConfig
from tidemark.broker.replication.replica import Replica
from tidemark.broker.replication.traffic import TopicTraffic
from tidemark.protocol.records import BatchHeader, read_header
from tidemark.protocol.schema import Bytes
from tidemark.storage import Log

log = logging.getLogger(__name__)


class Followed(Replica):
    __slots__ = ("_flushed_end", "_is_retired", "_synced", "_truncating", "_when_truncated", "failures", "leader")

    def __init__(
        self,
        *,
        topic: str,
        topic_id: bytes,
        index: int,
        leader: int,
        leader_epoch: int,
        log: Log,
        config: TopicConfig,
        executor: Executor,
        high_watermark: int,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.leader = leader  # -1: there is none
        self.failures = 0  # in a row
        self._is_retired = False
        self._truncating: Future[object] | None = None
        self._when_truncated: asyncio.Future[None] | None = None
        self._synced: asyncio.Future[None] | None = None
        self._flushed_end = log.recovery_point
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

    def follow(self, *, leader: int, leader_epoch: int) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.failures = 0

    def append_fetched(self, records: Bytes) -> bool:
        """What the leader has after our log's end. False: it is not that (the answer to a fetch that was sent before
        the last one was answered), and nothing is appended."""
        first = read_header(records)
        if first.base_offset >= self.log.end_offset:
            self.log.append_replicated(records)
        elif self.log.start_offset == self.log.end_offset < first.next_offset:
            self._append_from_within(records, first)
        else:
            return False
        self.traffic.replication_bytes_in += len(records)
        if self.log.end_offset - self.log.recovery_point >= self.unflushed_limit:
            self._commit.request()
        return True

    def _append_from_within(self, records: Bytes, first: BatchHeader) -> None:
        """As Kafka: DeleteRecords may leave a log that starts in the middle of a batch. A follower whose log is still
        empty takes that batch whole, and starts where its leader starts."""
        start_offset = self.log.start_offset
        self.log.truncate_fully_and_start_at(first.base_offset)
        self._flushed_end = min(self._flushed_end, first.base_offset)
        self.log.append_replicated(records)
        self.log.delete_before(min(start_offset, self.log.end_offset), later=True)

    def apply_leader_offsets(self, *, high_watermark: int, log_start_offset: int) -> None:
        """As the leader says: up to where records are committed, and where the log begins."""
        if log_start_offset > self.log.start_offset:
            self.log.delete_before(min(log_start_offset, self.log.end_offset), later=True)
        committed = min(high_watermark, self.log.end_offset)
        if committed <= self.high_watermark:
            return  # a new leader may not know yet what the old one said: it is committed all the same
        self.high_watermark = committed
        self.wake_all()

    # -- truncating: on another thread, as it syncs several files and may read a segment from end to end ------------

    @property
    def is_truncating(self) -> bool:
        """Then the log is not to be touched: not read, nor appended to, nor cleaned."""
        return self._truncating is not None

    def truncate_to_leader(self, *, epoch: int, end_offset: int) -> asyncio.Future[None]:
        """The leader's log and ours differ: `epoch`, the newest not after ours that it knows, ends at `end_offset`
        there. Drop what we have beyond; if our own history is another still, the next fetch tells (KIP-595)."""
        _, own_end = self.log.epoch_end_offset(epoch)
        offset = end_offset if own_end < 0 else min(end_offset, own_end)
        if epoch < 0 or offset < 0:  # it knows nothing of our epochs
            offset = self.high_watermark
        return self._truncate(partial(self.log.truncate_to, offset))

    def is_beyond_leader(self, *, log_start_offset: int) -> bool:
        """The leader has nothing at our end: has it nothing in common with us, either? Its log starts after our end, or
        ours is empty and starts after its end (an unclean election, say, after our records were deleted)."""
        own = self.log
        return log_start_offset > own.end_offset or own.start_offset == own.end_offset > log_start_offset >= 0

    def restart_at(self, offset: int) -> asyncio.Future[None]:
        """The leader has nothing of what we need next: begin where it begins."""
        log.warning("%s-%d: the leader begins at %d, we begin anew there", self.topic, self.index, offset)
        self.high_watermark = offset
        return self._truncate(partial(self.log.truncate_fully_and_start_at, offset))

    def _truncate(self, work: Callable[[], object]) -> asyncio.Future[None]:
        """The future is done when the log may be touched again; its exception says why the truncation failed."""
        assert self._truncating is None, "one truncation at a time"
        before = self.log.end_offset
        self._truncating = self.executor.submit(work)
        done = self._when_truncated = asyncio.get_running_loop().create_future()

        def finish(finished: asyncio.Future[object]) -> None:
            self._truncating = None
            error = None if finished.cancelled() else finished.exception()
            if not self._is_retired:  # or the log is another's by now
                self._truncated(before)
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(None)

        asyncio.wrap_future(self._truncating).add_done_callback(finish)
        return done

    @property
    def truncated(self) -> asyncio.Future[None]:
        """Of the truncation under way: done when the log may be touched again."""
        assert self._when_truncated is not None
        return self._when_truncated

    def _truncated(self, before: int) -> None:
        end_offset = self.log.end_offset
        self._flushed_end = min(max(self._flushed_end, self.log.recovery_point), end_offset)
        if end_offset < before:
            log.info(
                "%s-%d: dropped offsets %d..%d, which leader %d (epoch %d) does not have",
                self.topic, self.index, end_offset, before - 1, self.leader, self.leader_epoch,
            )  # fmt: skip
        if self.high_watermark > end_offset:
            log.error(
                "%s-%d: records below the high watermark %d were dropped: its leader lost them",
                self.topic, self.index, self.high_watermark,
            )  # fmt: skip
            self.high_watermark = end_offset

    def retire(self) -> None:
        """This node does not follow it any more: another may have the log, when no truncation is under way."""
        self._is_retired = True
        self.wake_all()
        self._end_wait()

    # -- flush.messages=1: a fetch beyond a record says that it is on our disk -----------

    @property
    def must_sync(self) -> bool:
        """Whether the leader must not hear yet how far this log goes. A start, or another role before, may have left
        something unsynced, too."""
        if not self.flush_each or self._is_retired or self.is_truncating:
            return False
        return self._flushed_end < self.log.end_offset

    def sync(self) -> asyncio.Future[None]:
        """Done when a sync has ended, well or not, or does not matter any more. Then ask `must_sync` again."""
        if self._synced is None:
            self._synced = asyncio.get_running_loop().create_future()
            self._commit.request()
        return self._synced

    def _flushed(self, end_offset: int) -> None:
        self._flushed_end = end_offset
        self._end_wait()

    def _flush_failed(self, error: BaseException) -> None:
        super()._flush_failed(error)
        self._end_wait()

    def _end_wait(self) -> None:
        waiting, self._synced = self._synced, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
