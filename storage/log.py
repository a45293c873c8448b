"""A partition's log: segments in a row, the last of which is written to.

Synchronous and single-threaded. An append is a header patch, one write(2) and a few assignments; a read is a dictionary
look-up and a (file, position, length) for the caller to send. Only the write may be left to another thread
(`pending_append`), one at a time: order and offsets are decided here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Literal, NamedTuple, overload

from tidemark.environment import chance, wall_clock_ms
from tidemark.protocol.records import BatchHeader, EndTransaction, place_batch, read_end_transaction
from tidemark.storage import history, loading, pending_append, reading, replicated, retention, rolling, truncation
from tidemark.storage.aborted import AbortedTransaction
from tidemark.storage.cache import SegmentCache
from tidemark.storage.cold import CachedFiles
from tidemark.storage.config import LogConfig
from tidemark.storage.deletion import PendingDeletions, remove_directory, retire_directory
from tidemark.storage.errors import LogOffline, OffsetOutOfRange, StorageError, WriteFailed
from tidemark.storage.files import REAL_FILES, Buffer, Files
from tidemark.storage.flush import Flush
from tidemark.storage.index import MAX_RELATIVE_OFFSET, TimeIndex
from tidemark.storage.lookup import Found, Search
from tidemark.storage.pending_append import PendingAppend
from tidemark.storage.producers import ProducerState
from tidemark.storage.remembered import RememberedStates
from tidemark.storage.rolling import PendingRoll
from tidemark.storage.segment import Segment
from tidemark.storage.segments import Segments
from tidemark.storage.slices import FileSlice, slice_segment
from tidemark.storage.unsynced import Unsynced

_CONTROL = history.CONTROL
_LOG_APPEND_TIME = 0x08

_logger = logging.getLogger(__name__)


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    log_append_time: int = -1  # -1: the records carry their producer's time
    duplicate: bool = False  # the batch was in the log already, at these offsets


_new_tuple = tuple.__new__  # what the class itself would call, without the call in between


class Log:
    """One partition's records on disk, and everything that is known about them. Open one with `Log.open`."""

    __slots__ = (
        "_chance",
        "_config",
        "_offline",
        "_pending",
        "_segment_bytes",
        "cached_files",
        "deletions",
        "directory",
        "end_offset",
        "epochs",
        "files",
        "now_ms",
        "on_truncated",
        "producer_states",
        "recovery_point",
        "remembered",
        "segments",
        "snapshots",
        "start_offset",
        "topic_id",
        "unhindered_bytes",
        "unsynced",
    )

    def __init__(
        self,
        directory: str,
        *,
        config: LogConfig,
        files: Files,
        now_ms: Callable[[], int],
        cache: SegmentCache,
        chance: Callable[[], float],
        loaded: loading.Loaded,
    ) -> None:
        self.directory = directory
        self.files = files
        self.cached_files = CachedFiles(files)
        self.topic_id = loaded.topic_id
        self.start_offset = loaded.start_offset  # the first that may be read
        self.end_offset = loaded.end_offset  # the next to be written
        self.recovery_point = loaded.recovery_point  # everything before it is known to be on disk
        # Called after a truncation: a recovery point on disk that lies beyond it must be lowered before new batches
        # come, or a torn tail among them would be taken for damage.
        self.on_truncated: Callable[[], None] | None = None
        self.segments = Segments(loaded.segments, cache)
        self.epochs = loaded.epochs
        self.producer_states = loaded.producers
        self.snapshots = loaded.snapshots  # of the producers
        self.remembered = RememberedStates()  # likewise, in memory
        self.deletions = PendingDeletions()
        self.unsynced = Unsynced(loaded.unflushed, self.deletions, changed=loaded.changed, created=loaded.created)
        self._offline: str | None = None  # why, if it is
        self._pending: PendingAppend | None = None  # an append that another thread writes
        self.now_ms = now_ms
        self._chance = chance
        self.config = config

    @classmethod
    def open(
        cls,
        directory: str,
        *,
        config: LogConfig,
        files: Files = REAL_FILES,
        now_ms: Callable[[], int] = wall_clock_ms,
        topic_id: bytes | None = None,
        recovery_point: int = 0,
        clean: bool,
        start_offset: int = 0,
        cleaned_up_to: int = 0,
        cache: SegmentCache | None = None,
        chance: Callable[[], float] = chance,
    ) -> Log:
        """Opens a partition's directory, or creates it. `clean` says that the last owner closed it properly; if not,
        everything past the recovery point is checked, and CorruptLog raised if it is damaged beyond a torn tail."""
        directory = os.path.abspath(directory)
        loaded = loading.load(
            files,
            directory,
            config=config,
            now_ms=now_ms(),
            topic_id=topic_id,
            recovery_point=recovery_point,
            clean=clean,
            start_offset=start_offset,
            cleaned_up_to=cleaned_up_to,
        )
        return cls(
            directory,
            config=config,
            files=files,
            now_ms=now_ms,
            cache=cache if cache is not None else SegmentCache(limit=8),
            chance=chance,
            loaded=loaded,
        )

    # State

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self.activate(self.segments.active)

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self.segments)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 when there is none."""
        return self.epochs.latest

    @property
    def generation(self) -> int:
        """How often the log was truncated: what was read from it before says nothing about it now."""
        return self.unsynced.generation

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether segments were rolled that no flush has covered. Kafka flushes after a roll; so should the owner."""
        return bool(self.unsynced.segments)

    @property
    def is_offline(self) -> bool:
        return self._offline is not None

    def fail(self, reason: str) -> None:
        """Takes the log offline: every later call raises LogOffline. The files stay as they are."""
        if self._offline is None:
            self._offline = f"{self.directory} is offline: {reason}"

    def check_online(self) -> None:
        if self._offline is not None:
            raise LogOffline(self._offline)

    # Appending

    @overload
    def append(
        self, batch: bytearray | memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> Appended: ...

    @overload
    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        later: Literal[True],
    ) -> Appended | PendingAppend: ...

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader,
        *,
        leader_epoch: int,
        now_ms: int,
        later: bool = False,
    ) -> Appended | PendingAppend:
        """Appends one checked batch as the partition's leader: gives it its offsets and epoch, in place. `later`: see
        `begin_append`."""
        if self._pending is not None:
            self.settle()
        if self._offline is not None:
            raise LogOffline(self._offline)
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        size = 12 + header.batch_length
        timestamp = header.max_timestamp
        append_time = timestamp if header.attributes & _LOG_APPEND_TIME else -1
        producer_id = header.producer_id
        marker: EndTransaction | None = None
        if producer_id >= 0:
            if header.attributes & _CONTROL:
                marker = self._check_marker(batch, header)
            elif (repeated := self.producer_states.check(header)) is not None:
                return Appended(repeated.first_offset, repeated.last_offset, append_time, True)
        if leader_epoch > self.epochs.saved:
            self.begin_epoch(leader_epoch, start=base_offset)
        segment = self.segments.active
        roll: PendingRoll | None = None
        if (
            segment.size + size > self.unhindered_bytes
            or timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_clock
            or last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
        ):
            roll = self._due_roll(
                size=size, first_offset=base_offset, last_offset=last_offset, timestamp=timestamp, now_ms=now_ms
            )
            if roll is not None:
                segment = roll.segment
                if not later:
                    rolling.run(self, roll)
        place_batch(batch, 0, base_offset=base_offset, leader_epoch=leader_epoch)
        if later:
            self._pending = PendingAppend(
                segment,
                batch,
                size=size,
                header=header,
                marker=marker,
                appended=Appended(base_offset, last_offset, append_time),
                roll=roll,
            )
            return self._pending
        try:
            position = segment.write(batch, size)
        except LogOffline as error:
            self.fail(str(error))
            raise
        segment.note_batch(
            position=position, size=size, base_offset=base_offset, last_offset=last_offset, timestamp=timestamp
        )
        self.end_offset = last_offset + 1
        if producer_id >= 0:
            self.note_producer(header, marker, first_offset=base_offset, last_offset=last_offset)
        return _new_tuple(Appended, (base_offset, last_offset, append_time, False))

    def begin_append(
        self, batch: bytearray | memoryview, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> Appended | PendingAppend:
        """As `append`, but left to another thread (see `pending_append`), unless the batch is in the log already."""
        return self.append(batch, header, leader_epoch=leader_epoch, now_ms=now_ms, later=True)

    def has_more_to_write(self, size: int) -> bool:
        """Whether an append of so much has other files to write, too, now or soon."""
        return self.segments.active.indexes.is_save_near or self.segments.active.size + size > self._segment_bytes

    def finish_append(self, pending: PendingAppend) -> Appended:
        """Raises what `append` would have raised."""
        if self._pending is pending:
            self.settle()
        return pending.outcome()

    def settle(self) -> None:
        """Finishes an append that has begun, if there is one. Waits for the thread that writes it."""
        if (pending := self._pending) is None:
            return
        pending()
        self._pending = None
        try:
            pending_append.take_in(self, pending)
        except StorageError as error:
            pending.fail(error)

    @property
    def is_appending(self) -> bool:
        """Whether an append has begun and is not finished."""
        return self._pending is not None

    def append_replicated(self, data: Buffer) -> int:
        """Appends batches as a follower: they keep the offsets and epochs the leader gave them. A torn last batch (a
        fetch may end in one) is left out. Returns the log's new end offset."""
        self.settle()
        self.check_online()
        return replicated.append(self, data)

    def _check_marker(self, batch: Buffer, header: BatchHeader) -> EndTransaction | None:
        marker = read_end_transaction(batch)
        if marker is not None:
            self.producer_states.check_marker(header, coordinator_epoch=marker.coordinator_epoch)
        return marker

    def note_producer(
        self, header: BatchHeader, marker: EndTransaction | None, *, first_offset: int, last_offset: int
    ) -> None:
        aborted = history.note_batch(
            self.producer_states, header, marker, first_offset=first_offset, last_offset=last_offset
        )
        if aborted is None:
            return
        active = self.segments.active
        if not active.has_aborts:
            self.unsynced.note_new_file()
        try:
            active.add_abort(aborted)
        except OSError as error:
            # The marker is in the log, but readers would not learn of the abort and be shown aborted records.
            self.fail(f"the index of aborted transactions cannot be written: {error}")
            self.check_online()

    def start_epoch(self, epoch: int) -> None:
        """A new leader epoch begins at the log's end."""
        self.settle()
        self.check_online()
        if epoch > self.epochs.latest:
            self.epochs.announce(epoch=epoch, start=self.end_offset)

    def begin_epoch(self, epoch: int, *, start: int) -> None:
        try:
            self.epochs.assign(epoch=epoch, start=start)
        except OSError as error:
            raise WriteFailed(f"{self.epochs.path}: {error}") from error

    # Rolling

    def roll(self) -> None:
        """Begins a new segment at the log's end, unless the active one is empty."""
        self.settle()
        self.check_online()
        if self.segments.active.size:
            rolling.roll_to(self, self.end_offset)

    def activate(self, segment: Segment) -> None:
        """Gives the segment that is written to the limits of the present configuration."""
        config = self._config
        segment.index_interval_bytes = config.index_interval_bytes
        segment.index_entries_max = config.segment_index_bytes // TimeIndex.ENTRY_SIZE
        # Logs that began together must not all roll together: each takes off a random part (segment.jitter.ms).
        jitter = int(self._chance() * min(config.segment_jitter_ms, config.roll_ms))
        segment.set_roll_age(config.roll_ms - jitter)
        self._set_unhindered_bytes(segment)

    def make_room(self, *, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int) -> Segment:
        """The segment for what is to be appended, after whatever is due before that."""
        roll = self._due_roll(
            size=size, first_offset=first_offset, last_offset=last_offset, timestamp=timestamp, now_ms=now_ms
        )
        if roll is not None:
            rolling.run(self, roll)
        return self.segments.active

    def _due_roll(
        self, *, size: int, first_offset: int, last_offset: int, timestamp: int, now_ms: int
    ) -> PendingRoll | None:
        """A new segment for what is to be appended, if it needs one. If not, the producers' states are remembered,
        which is due every megabyte or so."""
        roll = rolling.due(
            self, size=size, first_offset=first_offset, last_offset=last_offset, timestamp=timestamp, now_ms=now_ms
        )
        if roll is None:
            self.remembered.add(self.end_offset, self.producer_states)
            self._set_unhindered_bytes(self.segments.active)
        return roll

    def _set_unhindered_bytes(self, segment: Segment) -> None:
        """How large the active segment may become before an append has more to do than to write."""
        next_copy = segment.size + self.remembered.interval_bytes(self.producer_states)
        self.unhindered_bytes = min(self._segment_bytes, next_copy)

    # Reading

    def read(
        self, *, offset: int, limit_bytes: int, up_to: int | None = None, at_least_one: bool = True, wait: bool = True
    ) -> list[FileSlice]:
        """Whole batches from the one that holds `offset`, of at most `limit_bytes` (the first may exceed them if
        `at_least_one`), ending at or before `up_to`. One segment's worth at most; empty only at the end. Without `wait`
        it raises ColdRead rather than wait for the disk; what the slices hold may be cold all the same."""
        if self._offline is not None:
            raise LogOffline(self._offline)
        end_offset = self.end_offset
        if up_to is None or up_to > end_offset:
            up_to = end_offset
        if offset >= up_to or offset < self.start_offset:
            if offset > end_offset or offset < self.start_offset:
                raise OffsetOutOfRange(offset=offset, start=self.start_offset, end=end_offset)
            return []
        files = None if wait else self.cached_files
        segment = self.segments.active
        if offset < segment.base_offset:
            return reading.read_inactive(
                self.segments,
                offset=offset,
                limit_bytes=limit_bytes,
                up_to=up_to,
                end_offset=end_offset,
                at_least_one=at_least_one,
                files=files,
            )
        position = segment.memo.get(offset)
        if position is None:
            position = segment.locate(offset, files)
        end = segment.size if up_to == end_offset else segment.locate(up_to, files)
        return slice_segment(
            segment, start=position, end=end, limit_bytes=limit_bytes, at_least_one=at_least_one, files=files
        )

    def aborted_transactions(self, *, from_offset: int, up_to: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in from_offset..up_to-1, for a read_committed reader to skip."""
        self.check_online()
        return reading.aborted_transactions(self.segments, from_offset=from_offset, up_to=up_to)

    def aborted_in(self, offset: int, slices: list[FileSlice], *, wait: bool = True) -> list[AbortedTransaction]:
        """Aborted transactions with records in what a read from `offset` returned. Without `wait`: see `read`."""
        if not any(segment.has_aborts for segment in self.segments.from_offset(offset)):
            return []
        self.check_online()
        files = None if wait else self.cached_files
        end = reading.end_of_slice(self.segments, offset, slices[-1], end_offset=self.end_offset, files=files)
        return reading.aborted_transactions(self.segments, from_offset=offset, up_to=end, files=files)

    def offsets_in(self, offset: int, slices: list[FileSlice]) -> int:
        """How many offsets a read from `offset` returned, for statistics."""
        return reading.offsets_in(self.segments, offset, slices, end_offset=self.end_offset, files=self.cached_files)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The end of what a read_committed reader may see."""
        return self.producer_states.last_stable_offset(high_watermark)

    def offset_for_timestamp(self, timestamp: int) -> Found | None:
        """The first record at or after a time."""
        return self.begin_search(timestamp).run()

    def offset_of_max_timestamp(self) -> Found | None:
        """The record with the largest timestamp, the first of them if several."""
        return self.begin_search(None).run()

    def begin_search(self, timestamp: int | None) -> Search:
        """A search in the log as it is now, for another thread: it opens indexes, walks over batches and reads one."""
        self.check_online()
        return Search(self.segments, timestamp, start_offset=self.start_offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch not after `epoch` and where it ends; (-1, -1) if unknown (OffsetForLeaderEpoch)."""
        return self.epochs.end_offset(epoch, log_end=self.end_offset)

    def epoch_at(self, offset: int) -> int:
        return self.epochs.epoch_at(offset)

    def producers(self) -> list[ProducerState]:
        return self.producer_states.states()

    def producer(self, producer_id: int) -> ProducerState | None:
        return self.producer_states.get(producer_id)

    def expire_producers(self, now_ms: int) -> None:
        self.producer_states.expire(now_ms=now_ms, idle_ms=self._config.producer_id_expiration_ms)

    # Flushing

    def begin_flush(self, *, sealed: bool = False) -> Flush:
        """What has to be synced so that everything up to now is safe. Call it (on any thread), then `finish_flush`.
        The active segment's indexes are left out, unless it is `sealed`: recovery would rebuild them."""
        if (failure := self.unsynced.failure) is not None:
            self.fail(f"a sync failed: {failure}")  # the kernel tells of it once: the next sync would seem to succeed
        self.check_online()
        return self.unsynced.begin_flush(
            self.files,
            self.directory,
            up_to=self.end_offset,
            active=self.segments.active,
            epochs=self.epochs,
            sealed=sealed,
        )

    def finish_flush(self, flush: Flush) -> None:
        """Moves the recovery point, unless the log was truncated since `flush` began: then it speaks of bytes that are
        gone."""
        if flush.failure is not None:
            self.fail(f"a sync failed: {flush.failure}")
        self.check_online()
        if self.unsynced.finish_flush(flush):
            self.recovery_point = max(self.recovery_point, flush.up_to)

    def flush(self) -> None:
        """Syncs everything up to now, and waits for it."""
        self._run_flush(self.begin_flush())

    def _run_flush(self, flush: Flush) -> None:
        try:
            flush()
        except OSError as error:
            self.fail(f"a sync failed: {error}")
            raise LogOffline(self._offline) from error
        self.finish_flush(flush)

    # Truncation

    def truncate_to(self, offset: int) -> bool:
        """Drops every batch that ends past `offset`, and what its producers did there. False if there was none."""
        return truncation.truncate_to(self, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; it continues at `offset`, as a follower does that fell behind its leader's start."""
        truncation.truncate_fully_and_start_at(self, offset)

    # Retention

    def delete_before(self, offset: int, *, later: bool = False) -> None:
        """The log now starts at `offset`, whole segments before it go. `later`: see `LogDirectory.take_deleted`."""
        retention.delete_before(self, offset, later=later)

    def apply_retention(self, now_ms: int, *, high_watermark: int | None = None, later: bool = False) -> bool:
        """Deletes segments below the high watermark: too old, too much, or before the log's start. True if any went."""
        return retention.apply(self, now_ms, high_watermark=high_watermark, later=later)

    def take_deleted(self, now_ms: int) -> list[str]:
        """The files of segments deleted `file_delete_delay_ms` ago, for the caller to remove, on whatever thread."""
        return self.deletions.take_due(now_ms)

    def remove_deleted(self, now_ms: int) -> None:
        self.deletions.set_aside_all(self.files)
        for path in self.take_deleted(now_ms):
            self.files.remove(path)

    def close(self, *, clean: bool = True) -> None:
        """Closes the log. Cleanly: everything is synced, and opening it again needs no recovery."""
        was_online = self._offline is None
        self.settle()
        if was_online and clean:
            self.check_online()  # what was being written may have left it offline: nothing here is synced then
            try:
                rolling.end_last(self)
            except OSError as error:
                self.fail(f"closing it failed: {error}")
                raise LogOffline(self._offline) from error
            # The next start will believe what it finds, so the indexes must be on the disk, too.
            is_synced = self.recovery_point == self.end_offset and not self.segments.active.indexes.changed
            if not is_synced or self.unsynced.has_changes(self.epochs):
                self._run_flush(self.begin_flush(sealed=True))
        try:
            for path in self.deletions.take_all():
                self.files.remove(path)
        finally:
            self.segments.close()
            self.fail("it was closed")

    def delete(self) -> None:
        """Closes the log and removes it. It is renamed first: a crash leaves nothing that looks like the partition."""
        remove_directory(self.files, self.retire())

    def retire(self) -> str:
        """The first half of `delete`: the directory gets a name that no partition has. Returns its new path."""
        self.segments.close()
        self.fail("it was deleted")
        if self._pending is not None:
            self._pending.abandon()
        self.deletions.end()
        return retire_directory(self.files, self.directory)
