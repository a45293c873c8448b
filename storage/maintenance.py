"""A log's state, and what keeps it in shape: flushing, truncation, retention, closing, deletion."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from tidemark.storage import history, loading, names, retention
from tidemark.storage.cache import SegmentCache
from tidemark.storage.config import LogConfig
from tidemark.storage.errors import CorruptLog, LogOffline, OffsetOutOfRange, WriteFailed
from tidemark.storage.files import Files
from tidemark.storage.flush import Changes, Flush
from tidemark.storage.index import TimeIndex
from tidemark.storage.segment import Segment
from tidemark.storage.segments import Segments

_DIRECTORY_NAME_MAX = 249

_logger = logging.getLogger(__name__)


class Maintenance:
    """The part of a Log that is not on the path of an append or a read."""

    __slots__ = (
        "_chance",
        "_config",
        "_deleted",
        "_directory_changes",
        "_epochs",
        "_generation",
        "_now_ms",
        "_offline",
        "_parent_changes",
        "_producers",
        "_segment_bytes",
        "_segments",
        "_snapshots",
        "_synced",
        "_unflushed",
        "directory",
        "end_offset",
        "files",
        "on_truncated",
        "recovery_point",
        "start_offset",
        "topic_id",
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
        """Use `Log.open`."""
        self.directory = directory
        self.files = files
        self.topic_id = loaded.topic_id
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        # Called after a truncation: a recovery point on disk that lies beyond it must be lowered before new batches
        # come, or a torn tail among them would be taken for damage.
        self.on_truncated: Callable[[], None] | None = None
        self._now_ms = now_ms
        self._chance = chance
        self._epochs = loaded.epochs
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self._segments = Segments(loaded.segments, cache)
        self._unflushed = loaded.unflushed
        self._deleted: list[tuple[int, list[str]]] = []
        self._directory_changes = int(loaded.changed)
        self._parent_changes = int(loaded.created)
        self._synced = Changes()
        self._generation = 0
        self._offline: str | None = None
        self.config = config

    # State

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._activate(self._segments.active)

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, -1 when there is none."""
        return self._epochs.latest

    @property
    def has_unflushed_segments(self) -> bool:
        """Whether segments were rolled that no flush has covered. Kafka flushes after a roll; so should the owner."""
        return bool(self._unflushed)

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

    def _activate(self, segment: Segment) -> None:
        """Gives the segment that is written to the limits of the present configuration."""
        config = self._config
        segment.index_interval_bytes = config.index_interval_bytes
        segment.index_entries_max = config.segment_index_bytes // TimeIndex.ENTRY_SIZE
        # Logs that began together must not all roll together: each takes off a random part (segment.jitter.ms).
        jitter = int(self._chance() * min(config.segment_jitter_ms, config.segment_ms))
        segment.set_roll_age(config.segment_ms - jitter)

    # Rolling

    def roll(self) -> None:
        """Begins a new segment at the log's end, unless the active one is empty."""
        self.check_online()
        if self._segments.active.size:
            self._roll_to(self.end_offset)

    def _roll_to(self, base_offset: int) -> None:
        old = self._segments.active
        try:
            old.seal()
            self._snapshots.take(base_offset, self._producers.to_snapshot())
            segment = Segment.create(self.files, self.directory, base_offset, created_ms=self._now_ms())
        except OSError as error:
            raise WriteFailed(f"{self.directory}: cannot begin a segment at {base_offset}: {error}") from error
        self._directory_changes += 1
        if old.base_offset != base_offset:
            self._unflushed.append(old)
        self._segments.append(segment)
        self._activate(segment)

    # Flushing

    def begin_flush(self, *, sealed: bool = False) -> Flush:
        """What has to be synced so that everything up to now is safe. Call it (on any thread), then `finish_flush`.
        The active segment's indexes are left out, unless it is `sealed`: recovery would rebuild them."""
        self.check_online()
        active = self._segments.active
        unflushed = tuple(self._unflushed)
        indexed = (*unflushed, active) if sealed else unflushed
        paths = [segment.path(suffix) for segment in indexed for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)]
        with_aborts = (segment for segment in (*unflushed, active) if segment.has_aborts)
        paths.extend(segment.path(names.ABORTED_INDEX) for segment in with_aborts)
        changes, synced, directories = self._changes(), self._synced, []
        if changes.epochs > synced.epochs:
            paths.append(self._epochs.path)
        if changes.directory > synced.directory or changes.epochs > synced.epochs:
            directories.append(self.directory)
        if changes.parent > synced.parent:
            directories.append(os.path.dirname(self.directory))
        return Flush(
            self.files,
            up_to=self.end_offset,
            generation=self._generation,
            changes=changes,
            open_files=[segment.open_file() for segment in (*unflushed, active)],
            paths=paths,
            directories=directories,
            segments=unflushed,
        )

    def finish_flush(self, flush: Flush) -> None:
        """Moves the recovery point, unless the log was truncated since `flush` began: then it speaks of bytes that are
        gone."""
        if flush.failure is not None:
            self.fail(f"a sync failed: {flush.failure}")
        self.check_online()
        assert flush.done, "call the flush before finishing it"
        if flush.generation != self._generation:
            return
        self.recovery_point = max(self.recovery_point, flush.up_to)
        self._unflushed = [segment for segment in self._unflushed if segment not in flush.segments]
        # Only what had changed when the flush began: a segment begun since is still to be synced.
        self._synced = Changes(*map(max, self._synced, flush.changes))

    def _changes(self) -> Changes:
        return Changes(self._directory_changes, self._epochs.changes, self._parent_changes)

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
        """Drops every batch that ends at or past `offset`, and with it whatever its producers did there. A batch that
        straddles the offset goes whole. False if there was nothing to drop."""
        self.check_online()
        if offset >= self.end_offset:
            # An epoch may have begun at the end without a record: to whoever never had it, it never was.
            try:
                self._epochs.truncate_end(offset)
            except OSError as error:
                raise WriteFailed(f"{self._epochs.path}: {error}") from error
            return False
        if offset < self._segments.first_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        self._generation += 1
        try:
            self._cut_to(offset)
        except (OSError, CorruptLog) as error:
            self.fail(f"truncation to {offset} failed: {error}")
            raise LogOffline(self._offline) from error
        self._activate(self._segments.active)
        self.start_offset = min(self.start_offset, self.end_offset)
        self.recovery_point = min(self.recovery_point, self.end_offset)
        self._tell_truncated()
        return True

    def _cut_to(self, offset: int) -> None:
        # Last segment first: whenever this is interrupted, a log without gaps remains.
        while self._segments.active.base_offset > offset:
            self._remove_files(self._segments.remove_active())
        active = self._segments.active
        self._unflushed = [segment for segment in self._unflushed if segment in set(self._segments) - {active}]
        position = active.locate(offset)
        if position < active.size:
            offset = min(offset, active.base_offset_at(position))
        active.truncate(offset=offset, position=position)
        self.end_offset = offset
        self._snapshots.remove_after(offset)
        self.files.sync_directory(self.directory)
        self._epochs.truncate_end(offset)
        history.rebuild(
            self._producers,
            self._snapshots,
            list(self._segments),
            end_offset=offset,
            from_snapshot_up_to=offset,
            index_aborts_from=offset,
        )

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; it continues at `offset`, as a follower does that fell behind its leader's start."""
        self.check_online()
        self._generation += 1
        try:
            for segment in reversed(list(self._segments)):
                self._remove_files(segment)
            self._snapshots.remove_after(-1)
            self._epochs.clear()
            segment = Segment.create(self.files, self.directory, offset, created_ms=self._now_ms())
            self.files.sync_directory(self.directory)
        except OSError as error:
            self.fail(f"emptying it failed: {error}")
            raise LogOffline(self._offline) from error
        self._producers.clear()
        self._segments.replace_all(segment)
        self._unflushed = []
        self.start_offset = self.end_offset = self.recovery_point = offset
        self._activate(segment)
        self._tell_truncated()

    def _tell_truncated(self) -> None:
        try:
            if self.on_truncated is not None:
                self.on_truncated()
        except OSError as error:
            self.fail(f"its recovery point cannot be written after a truncation: {error}")
            raise LogOffline(self._offline) from error

    def _remove_files(self, segment: Segment) -> None:
        segment.close_file()
        for path in segment.rename_for_deletion():
            self.files.remove(path)

    # Retention

    def delete_before(self, offset: int) -> None:
        """The log now starts at `offset` (DeleteRecords). Segments that lie wholly before it go."""
        self.check_online()
        if offset > self.end_offset:
            raise OffsetOutOfRange(offset=offset, start=self.start_offset, end=self.end_offset)
        if offset <= self.start_offset:
            return
        self.start_offset = offset
        self._advance_epochs()
        self._delete_first(retention.wholly_before(list(self._segments), offset))

    def apply_retention(self, now_ms: int, *, high_watermark: int | None = None) -> bool:
        """Deletes segments that are too old, too much, or before the log's start; none that holds records past the
        high watermark. True if any went."""
        self.check_online()
        committed = self.end_offset if high_watermark is None else high_watermark
        segments = list(self._segments)
        count = retention.deletable(
            segments,
            config=self._config,
            now_ms=now_ms,
            start_offset=self.start_offset,
            end_offset=self.end_offset,
            high_watermark=committed,
        )
        if count == len(segments):
            count = self._roll_or_keep_active(count)
        self._delete_first(count)
        if count:
            self.start_offset = max(self.start_offset, self._segments.first_offset)
            self._advance_epochs()
        return count > 0

    def _roll_or_keep_active(self, count: int) -> int:
        """Even the active segment has expired: a new one takes its place, so that the log keeps its end. On a full disk
        there is no room for that; the others must go all the same."""
        try:
            self._roll_to(self.end_offset)
        except WriteFailed:
            return count - 1
        return count

    def _advance_epochs(self) -> None:
        try:
            self._epochs.truncate_start(self.start_offset)
        except OSError as error:
            _logger.warning("%s: cannot write %s: %s", self.directory, self._epochs.path, error)  # loading repeats it

    def _delete_first(self, count: int) -> None:
        due_ms = self._now_ms() + self._config.file_delete_delay_ms
        for _ in range(count):
            segment = self._segments.remove_first()
            if segment in self._unflushed:
                self._unflushed.remove(segment)
            try:
                self._deleted.append((due_ms, segment.rename_for_deletion()))
            except OSError as error:
                raise WriteFailed(f"{self.directory}: cannot delete segment {segment.base_offset}: {error}") from error
            if self._snapshots.offsets()[-1:] != [segment.base_offset]:
                self._snapshots.remove(segment.base_offset)
            segment.release()

    def take_deleted(self, now_ms: int) -> list[str]:
        """The files of segments deleted `file_delete_delay_ms` ago: slow readers have had that long. The caller removes
        them, on whatever thread: to unlink a gigabyte takes its time."""
        if not self._deleted:
            return []
        due = [path for due_ms, paths in self._deleted if due_ms <= now_ms for path in paths]
        self._deleted = [entry for entry in self._deleted if entry[0] > now_ms]
        return due

    def remove_deleted(self, now_ms: int) -> None:
        for path in self.take_deleted(now_ms):
            self.files.remove(path)

    # The end

    def close(self, *, clean: bool = True) -> None:
        """Closes the log. Cleanly: everything is synced, and opening it again needs no recovery."""
        if self._offline is None and clean:
            try:
                self._segments.active.seal()
                self._snapshots.take(self.end_offset, self._producers.to_snapshot())
            except OSError as error:
                self.fail(f"closing it failed: {error}")
                raise LogOffline(self._offline) from error
            if self.recovery_point < self.end_offset or self._changes() != self._synced:
                self._run_flush(self.begin_flush(sealed=True))
        for _, paths in self._deleted:
            for path in paths:
                self.files.remove(path)
        self._segments.close()
        self.fail("it was closed")

    def delete(self) -> None:
        """Closes the log and removes it from disk. The directory is renamed first, so that a crash in between leaves
        nothing that could be taken for the partition."""
        remove_directory(self.files, self.retire())

    def retire(self) -> str:
        """The first half of `delete`: the directory gets a name that no partition has. Returns its new path."""
        self._segments.close()
        self.fail("it was deleted")
        return retire_directory(self.files, self.directory)


def retire_directory(files: Files, path: str) -> str:
    """Gives a partition's directory a name that no partition has. Returns its new path."""
    parent, name = os.path.split(path)
    suffix = f".{os.urandom(16).hex()}{names.DELETE_DIRECTORY}"
    retired = os.path.join(parent, name[: _DIRECTORY_NAME_MAX - len(suffix)] + suffix)
    files.rename(path, retired)
    return retired


def remove_directory(files: Files, path: str) -> None:
    """Removes a retired log's directory with the files in it."""
    for name in files.list(path):
        files.remove(os.path.join(path, name))
    files.remove_directory(path)
