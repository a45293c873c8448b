"""A log directory (`log.dirs`): the partitions in it, the files that speak for all of them, and the lock on it.

The order at a clean stop matters: logs closed and synced, checkpoints written, the clean shutdown file last. At a start
that file is removed before anything else changes, so that a crash at any later moment is seen as one.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType

from tidemark.environment import current, new_executor, new_lock, wall_clock_ms
from tidemark.storage import checkpoints, moving, names
from tidemark.storage.cache import SegmentCache
from tidemark.storage.checkpoints import TopicPartition
from tidemark.storage.config import LogConfig
from tidemark.storage.deletion import PendingDeletions, remove_directory, retire_directory
from tidemark.storage.errors import CorruptFile, DirectoryLocked, DirectoryOffline, StorageError
from tidemark.storage.files import Files, OpenFile, directories_below
from tidemark.storage.log import Log

_logger = logging.getLogger(__name__)

_LOCK = ".lock"
_CLOSED_TOGETHER = 16
_CLOSED_TOGETHER_FROM = 100
_OLD_FILES_MAX = 256  # of segments that are only read


class LogDirectory:
    """Owns a directory from `open` to `close`. `logs` holds the partitions that are open."""

    def __init__(
        self,
        path: str,
        *,
        files: Files,
        now_ms: Callable[[], int],
        lock: OpenFile,
        clean_epoch: int | None,
        open_files_max: int,
    ) -> None:
        """Use `LogDirectory.open`."""
        self.path = path
        self.files = files
        self.was_clean = clean_epoch is not None
        self.clean_epoch = checkpoints.NO_BROKER_EPOCH if clean_epoch is None else clean_epoch
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermarks = self._read(checkpoints.HIGH_WATERMARKS)
        self.cleaned_up_to = self._read(checkpoints.CLEANED_UP_TO)  # by the cleaner: where its next turn begins
        self._now_ms = now_ms
        self._lock = lock
        self._cache = SegmentCache(limit=open_files_max)
        self._recovery_points = self._read(checkpoints.RECOVERY_POINTS)
        self._start_offsets = self._read(checkpoints.START_OFFSETS)
        self._retired: list[tuple[int, str]] = []
        self._refused: set[TopicPartition] = set()  # tried to open, in vain
        self._has_unsynced_names = False  # directories were renamed
        self._is_setting_aside = False  # one thread at a time: the others are for syncs
        self._writing = new_lock()  # of checkpoints, one at a time
        self._tables = new_lock()  # of what they tell; never held while the disk is waited for
        self._forgotten: set[TopicPartition] = set()  # partitions that are gone, and that the files may still tell of
        self._closed = False
        self._is_ours = files.exists(os.path.join(path, checkpoints.OURS))  # see `_take_over`
        self._lock_identity = files.identity(os.path.join(path, _LOCK))
        self.id = bytes(16)  # the directory's own, as its owner says (KIP-858)
        self.failure: str | None = None  # why nothing here can be used any more
        self.interrupted_moves: list[TopicPartition] = []  # to this directory, when the last life ended

    @classmethod
    def open(
        cls,
        path: str,
        *,
        files: Files | None = None,
        now_ms: Callable[[], int] = wall_clock_ms,
        open_files_max: int | None = None,
    ) -> LogDirectory:
        """Takes the directory, creating it if need be. Raises DirectoryLocked if another process has it.

        `open_files_max`: of segments that are read and not written to."""
        path = os.path.abspath(path)
        files = files or current().files
        files.make_directories(path)
        lock = _lock(files, os.path.join(path, _LOCK))
        try:
            old_files_max = min(_OLD_FILES_MAX, files.spare_count() // 2) if open_files_max is None else open_files_max
            return cls._open_locked(path, lock, files=files, now_ms=now_ms, open_files_max=old_files_max)
        except BaseException:
            lock.close()
            files.locked.discard(os.path.join(path, _LOCK))
            raise

    @classmethod
    def _open_locked(
        cls, path: str, lock: OpenFile, *, files: Files, now_ms: Callable[[], int], open_files_max: int
    ) -> LogDirectory:
        clean_file = os.path.join(path, checkpoints.CLEAN_SHUTDOWN)
        clean_epoch = checkpoints.read_clean_shutdown(files, clean_file)
        if clean_epoch is not None:
            files.remove(clean_file)
            files.sync_directory(path)
        directory = cls(
            path, files=files, now_ms=now_ms, lock=lock, clean_epoch=clean_epoch, open_files_max=open_files_max
        )
        directory._remove_leftovers()
        directory._forget_missing()
        if clean_epoch is not None or next(directory.partitions(), None) is None:
            directory._take_over()
        return directory

    def _take_over(self) -> None:
        """From now on only we clean here, and never past a recovery point that is on disk: a gap behind that is a loss.
        (Apache Kafka cleans beyond it: a directory of Kafka's that was killed is taken over after our first clean
        stop.)"""
        if self._is_ours:
            return
        try:
            self.files.replace(os.path.join(self.path, checkpoints.OURS), b"Tidemark's\n", sync=True)
            self._is_ours = True
        except OSError as error:  # on a full disk, say, which is no reason not to serve what is here
            _logger.warning("%s cannot be marked as ours: %s", self.path, error)

    # Failing

    def check(self) -> None:
        """Raises what is wrong with the directory itself, as far as it can be told without writing. For any thread."""
        if self.files.identity(os.path.join(self.path, _LOCK)) != self._lock_identity:
            raise DirectoryOffline(f"{self.path} is not what was opened: its volume is not mounted any more")
        if self.files.is_read_only(self.path):
            raise DirectoryOffline(f"{self.path} has become read-only")

    def fail(self, reason: str) -> None:
        """Nothing here can be trusted any more: every log goes offline, and nothing more is written."""
        self.failure = reason
        for log in self.logs.values():
            log.fail(reason)

    # Partitions

    def partitions(self) -> Iterator[TopicPartition]:
        """The partitions that have a directory here, open or not."""
        for name in directories_below(self.files, self.path):
            parsed = names.parse_directory(name)
            if parsed is not None:
                yield parsed

    def open_log(self, topic: str, partition: int, *, config: LogConfig, topic_id: bytes | None = None) -> Log:
        """Opens a partition's log, or creates it."""
        key = topic, partition
        if key in self.logs:
            return self.logs[key]
        return self.add_log(topic, partition, self.load_log(topic, partition, config=config, topic_id=topic_id))

    def load_log(self, topic: str, partition: int, *, config: LogConfig, topic_id: bytes | None = None) -> Log:
        """The first half of `open_log`, for any thread: changes nothing but the partition's own files. No other thread
        may have it open or be about to."""
        key = topic, partition
        if self.failure is not None:
            raise DirectoryOffline(self.failure)
        self._refused.add(key)
        if key in self._forgotten:
            # A deleted partition had this name. After a crash the new one must not start where that one started, nor
            # count as synced or committed as far as that one was.
            self.write_checkpoints()
        log = Log.open(
            self._path_of(key),
            config=config,
            files=self.files,
            now_ms=self._now_ms,
            topic_id=topic_id,
            recovery_point=self._recovery_points.get(key, 0),
            clean=self.was_clean,
            start_offset=self._start_offsets.get(key, 0),
            cleaned_up_to=self._cleaned_up_to(key, config),
            cache=self._cache,
        )
        if log.recovery_point < self._recovery_points.get(key, 0):
            # A kill came between a truncation and this file. It is lowered before new batches come.
            self.write_recovery_points({key: log.recovery_point})
        self._refused.discard(key)
        return log

    def _cleaned_up_to(self, key: TopicPartition, config: LogConfig) -> int:
        """Where compaction may have left gaps; anywhere, in a directory that is not known to be ours alone."""
        return sys.maxsize if config.compact and not self._is_ours else self.cleaned_up_to.get(key, 0)

    def add_log(self, topic: str, partition: int, log: Log) -> Log:
        """The second half."""
        assert (topic, partition) not in self.logs, "it is open already"
        log.on_truncated = partial(self._lower_checkpoints, (topic, partition))
        self.logs[topic, partition] = log
        return log

    def open_all(self, config_of: Callable[[str, int], LogConfig]) -> dict[TopicPartition, StorageError | OSError]:
        """Opens every partition found. One that cannot be opened does not hinder the others: its error is returned."""
        failures: dict[TopicPartition, StorageError | OSError] = {}
        for topic, partition in list(self.partitions()):
            try:
                self.open_log(topic, partition, config=config_of(topic, partition))
            except (StorageError, OSError) as error:
                failures[topic, partition] = error
        return failures

    def delete(self, topic: str, partition: int) -> None:
        """Takes a partition away. Its files go with a later `remove_deleted`."""
        key = topic, partition
        log = self.logs.pop(key)
        self._retire(key, log.retire(), delay_ms=log.config.file_delete_delay_ms)

    def discard(self, topic: str, partition: int) -> None:
        """As `delete`, also for a partition that cannot be opened, or whose log is offline."""
        key = topic, partition
        if key in self.logs:
            self.delete(topic, partition)
            return
        self._retire(key, retire_directory(self.files, self._path_of(key)), delay_ms=0)

    # Moving from one directory to another: see storage/moving.py

    def future_path(self, key: TopicPartition) -> str:
        return os.path.join(self.path, moving.future_name(topic=key[0], partition=key[1]))

    def expect(
        self, key: TopicPartition, log: Log, future: Log, *, high_watermark: int, cleaned_up_to: int | None
    ) -> None:
        """A log is about to move here: what the checkpoints are to say of it. `write_expected` makes it last."""
        with self._tables:
            self._forgotten.discard(key)
            self._recovery_points[key] = future.recovery_point
            self._start_offsets[key] = log.start_offset
            self.high_watermarks[key] = high_watermark
            if cleaned_up_to is not None:
                self.cleaned_up_to[key] = cleaned_up_to

    def write_expected(self) -> None:
        """For any thread."""
        self.write_checkpoints({})
        self.write_cleaned_up_to()

    def unexpect(self, key: TopicPartition) -> None:
        """It does not move here after all."""
        self._forget(key)

    def receive(self, key: TopicPartition, log: Log, future: Log) -> None:
        """The log goes on here, in the files of `future`."""
        moving.relocate(log, future, path=self._path_of(key))
        self._has_unsynced_names = True
        self.add_log(*key, log)

    def release(self, key: TopicPartition) -> None:
        """The log goes on elsewhere. Its directory is still here."""
        self.logs.pop(key, None)

    def remove_moved(self, key: TopicPartition, *, delay_ms: int) -> None:
        """What is left of a log that moved away, and is safe where it is now."""
        self._retire(key, retire_directory(self.files, self._path_of(key)), delay_ms=delay_ms)

    def note_move(self, key: TopicPartition, target_id: bytes) -> None:
        """From now on the log may go on in the directory of this id. For any thread."""
        self.files.replace(self.note_path(key), target_id.hex().encode(), sync=True)

    def forget_move(self, key: TopicPartition) -> None:
        """It goes on here. For any thread."""
        self.files.remove(self.note_path(key))

    def moving_to(self, key: TopicPartition) -> str | None:
        """The id, in hexadecimal digits, of the directory that the log may have moved to; None if it has not."""
        if not self.files.exists(self.note_path(key)):
            return None
        return self.files.read_all(self.note_path(key)).decode(errors="replace")

    def note_path(self, key: TopicPartition) -> str:
        return os.path.join(self._path_of(key), moving.NOTE)

    def has_mark(self, key: TopicPartition) -> bool:
        """Whether the log moved here lately: one in another directory would be the old one."""
        return self.files.exists(self._mark_of(key))

    def remove_mark(self, key: TopicPartition) -> None:
        self.files.remove(self._mark_of(key))

    def _mark_of(self, key: TopicPartition) -> str:
        return os.path.join(self._path_of(key), moving.MARK)

    def retire_strays(self, is_assigned: Callable[[str, int], bool]) -> list[str]:
        """Takes away the partitions that are here and not open, and that this broker is not assigned: of topics deleted
        while it was down, or whose deletion a power cut undid. Returns the names that their directories have now.

        They are renamed and kept: a broker that was given the wrong directory must not destroy what it finds there."""
        strays = [key for key in self.partitions() if key not in self.logs and not is_assigned(*key)]
        return [self._retire_stray(key) for key in strays]

    def _retire_stray(self, key: TopicPartition) -> str:
        retired = retire_directory(self.files, self._path_of(key), kind=names.STRAY_DIRECTORY)
        self._forget(key)
        return os.path.basename(retired)

    def _retire(self, key: TopicPartition, path: str, *, delay_ms: int) -> None:
        """The directory of a partition has been renamed to `path`."""
        self._retired.append((self._now_ms() + delay_ms, path))
        self._forget(key)

    def _forget(self, key: TopicPartition) -> None:
        self._has_unsynced_names = True
        self._refused.discard(key)
        with self._tables:
            noted = [table.pop(key, 0) for table in self._checkpointed()]
            if any(noted) or self._writing.locked():
                self._forgotten.add(key)

    def _checkpointed(self) -> Iterable[dict[TopicPartition, int]]:
        return self._recovery_points, self._start_offsets, self.high_watermarks, self.cleaned_up_to

    def _path_of(self, key: TopicPartition) -> str:
        return os.path.join(self.path, names.directory_name(topic=key[0], partition=key[1]))

    def take_deleted(self, now_ms: int) -> Callable[[], None] | None:
        """Work that removes the files whose deletion is due, of segments and of whole partitions, and makes deletions
        durable; for any thread."""
        waiting = [log.deletions for log in self.logs.values() if log.deletions and not log.is_offline]
        paths = [path for deletions in waiting for path in deletions.take_due(now_ms)]
        to_rename = [] if self._is_setting_aside else [deletions for deletions in waiting if deletions.has_live]
        directories = [path for due_ms, path in self._retired if due_ms <= now_ms]
        self._retired = [entry for entry in self._retired if entry[0] > now_ms]
        has_unsynced_names, self._has_unsynced_names = self._has_unsynced_names, False
        if not paths and not directories and not has_unsynced_names and not to_rename:
            return None
        self._is_setting_aside = self._is_setting_aside or bool(to_rename)

        def remove() -> None:
            try:
                if has_unsynced_names:
                    self.files.sync_directory(self.path)
                failures = [error for each in to_rename if (error := _set_aside(self.files, each)) is not None]
            finally:
                self._is_setting_aside = self._is_setting_aside and not to_rename
            for path in paths:
                self.files.remove(path)
            for path in directories:
                remove_directory(self.files, path)
            if failures:
                raise failures[0]

        return remove

    def remove_deleted(self, now_ms: int) -> None:
        if (work := self.take_deleted(now_ms)) is not None:
            work()

    # The files that speak for all

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Writes how far each log is synced, where it starts and, if given, its high watermark. For any thread: it
        waits for the disk several times."""
        with self._writing:
            with self._tables:
                forgotten, self._forgotten = self._forgotten, set()
                self._start_offsets.update((key, log.start_offset) for key, log in list(self.logs.items()))
                starts = self._noted_starts()
                self.high_watermarks.update(high_watermarks or {})
                high_watermarks = dict(self.high_watermarks)
                cleaned_up_to = dict(self.cleaned_up_to)
            try:
                self._write_recovery_points()
                self._write(checkpoints.START_OFFSETS, starts)
                if high_watermarks is not None or forgotten:
                    self._write(checkpoints.HIGH_WATERMARKS, high_watermarks)
                if forgotten and self.files.exists(os.path.join(self.path, checkpoints.CLEANED_UP_TO)):
                    self._write(checkpoints.CLEANED_UP_TO, cleaned_up_to)
            except OSError:
                with self._tables:
                    self._forgotten |= forgotten
                raise

    def _noted_starts(self) -> dict[TopicPartition, int]:
        """As Kafka does: a log that starts where its first segment starts needs no entry."""
        return {key: offset for key, offset in self._start_offsets.items() if offset}

    def write_high_watermarks(self) -> None:
        """As they are in `high_watermarks`. For any thread."""
        with self._writing:
            with self._tables:
                high_watermarks = dict(self.high_watermarks)
            self._write(checkpoints.HIGH_WATERMARKS, high_watermarks)

    def write_cleaned_up_to(self) -> None:
        """As it is in `cleaned_up_to`. For any thread."""
        with self._writing:
            with self._tables:
                offsets = dict(self.cleaned_up_to)
            self._write(checkpoints.CLEANED_UP_TO, offsets)

    def write_recovery_points(self, opening: Mapping[TopicPartition, int] | None = None) -> None:
        """`opening`: also of logs that are not among the open ones yet."""
        with self._writing:
            self._write_recovery_points(opening or {})

    def noted_recovery_point(self, key: TopicPartition) -> int:
        """As the file says: a kill takes the log back to it."""
        return self._recovery_points.get(key, 0)

    def _write_recovery_points(self, opening: Mapping[TopicPartition, int] = MappingProxyType({})) -> None:
        with self._tables:
            open_ = {key: log.recovery_point for key, log in list(self.logs.items())}
            points = {**self._recovery_points, **open_, **opening}
        self._write(checkpoints.RECOVERY_POINTS, points)
        with self._tables:  # what was deleted meanwhile stays so
            self._recovery_points = {key: offset for key, offset in points.items() if key not in self._forgotten}

    def _lower_checkpoints(self, key: TopicPartition) -> None:
        """After a truncation: what the files say must not lie beyond the log's end. Mostly it does not, for what is
        truncated is seldom synced."""
        log = self.logs.get(key)
        with self._writing:  # or a checkpoint that is being written could bring back what was read before
            if log is None or self._recovery_points.get(key, 0) > log.recovery_point:
                self._write_recovery_points()
            if log is not None and self._start_offsets.get(key, 0) > log.start_offset:
                # A start that finds a log which ends before it begins takes everything in it for deleted.
                with self._tables:
                    self._start_offsets[key] = log.start_offset
                    starts = self._noted_starts()
                self._write(checkpoints.START_OFFSETS, starts)
            if log is not None and self.high_watermarks.get(key, 0) > log.end_offset:
                with self._tables:
                    self.high_watermarks[key] = log.end_offset  # what comes there now is not committed
                    high_watermarks = dict(self.high_watermarks)
                self._write(checkpoints.HIGH_WATERMARKS, high_watermarks)
            if log is not None and self.cleaned_up_to.get(key, 0) > log.end_offset:
                self.cleaned_up_to[key] = log.end_offset  # what comes there now is not clean
                self._write(checkpoints.CLEANED_UP_TO, dict(self.cleaned_up_to))

    def meta_properties(self) -> dict[str, str]:
        """cluster.id, node.id, directory.id and version; empty in a new directory."""
        return checkpoints.read_properties(self.files, os.path.join(self.path, checkpoints.META_PROPERTIES))

    def write_meta_properties(self, properties: Mapping[str, str]) -> None:
        path = os.path.join(self.path, checkpoints.META_PROPERTIES)
        checkpoints.write_properties(self.files, path, {"version": "1", **properties})

    def close(
        self,
        *,
        clean: bool = True,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        is_complete: bool = True,
        broker_epoch: int | None = None,
    ) -> None:
        """Closes all logs and gives the directory up. The clean shutdown file is written only if every log was synced
        and closed well, and none was left unopened that might need recovery (`is_complete`). It names `broker_epoch`;
        if that is not given, the one that the last such file named. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        epoch = self.clean_epoch if broker_epoch is None else broker_epoch
        clean = clean and self.failure is None
        healthy = clean and is_complete and not self._has_unchecked_logs()
        healthy = healthy and not any(log.is_offline for log in self.logs.values())
        try:
            for error in self._close_logs(clean=clean):
                healthy = False
                _logger.error("%s", error)
            if clean:
                self.write_checkpoints(high_watermarks)
            if healthy:
                clean_file = os.path.join(self.path, checkpoints.CLEAN_SHUTDOWN)
                checkpoints.write_clean_shutdown(self.files, clean_file, broker_epoch=epoch)
        finally:
            self._lock.close()
            self.files.locked.discard(os.path.join(self.path, _LOCK))

    def _has_unchecked_logs(self) -> bool:
        """Whether a log may be damaged that the next start would take for whole: it was refused, or, after an unclean
        stop, never opened."""
        return bool(self._refused) or (not self.was_clean and any(key not in self.logs for key in self.partitions()))

    def _close_logs(self, *, clean: bool) -> list[StorageError | OSError]:
        """Many at a time if they are many: their syncs, each of which waits for the disk, then wait together."""
        logs = list(self.logs.values())
        if len(logs) < _CLOSED_TOGETHER_FROM:
            return [error for log in logs if (error := _close(log, clean=clean)) is not None]
        logs.sort(key=lambda log: log.segments.active.file is None)  # descriptors that may be scarce are free first
        count = min(_CLOSED_TOGETHER, self.files.spare_count() // 2)
        with new_executor(max(count, 1), name="close") as threads:
            return [error for error in threads.map(partial(_close, clean=clean), logs) if error is not None]

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint. A damaged one counts as empty: recovery then checks more than it need, and loses nothing."""
        try:
            return checkpoints.read_offsets(self.files, os.path.join(self.path, name))
        except CorruptFile:
            return {}

    def _write(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self.files, os.path.join(self.path, name), offsets)

    def _forget_missing(self) -> None:
        """A crash came after a partition was deleted, and before the files forgot it: one of its name begins at 0."""
        noted = {key for table in self._checkpointed() for key in table}
        if noted:
            for key in noted.difference(self.partitions()):
                self._forget(key)

    def _remove_leftovers(self) -> None:
        for name in directories_below(self.files, self.path):
            moved = moving.parse_future(name)
            if moved is not None:
                self.interrupted_moves.append(moved)  # which begin anew: the log may have changed since
            if name.endswith((names.DELETE_DIRECTORY, names.FUTURE_DIRECTORY)):
                remove_directory(self.files, os.path.join(self.path, name))


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Keeps brokers out of a directory while the files of a stopped one are changed."""
    name = os.path.join(path, _LOCK)
    files = current().files
    lock = _lock(files, name)
    try:
        yield
    finally:
        lock.close()
        files.locked.discard(name)


def clean_broker_epoch(directories: Iterable[LogDirectory]) -> int:
    """The broker epoch of the last life, if it ended cleanly in every directory; else -1. A directory without that file
    was not closed, or is not the one that was closed: its disk was replaced or emptied."""
    epochs = {directory.clean_epoch for directory in directories}
    return epochs.pop() if len(epochs) == 1 else checkpoints.NO_BROKER_EPOCH


def _close(log: Log, *, clean: bool) -> StorageError | OSError | None:
    try:
        log.close(clean=clean)
    except (StorageError, OSError) as error:
        return error
    return None


def _set_aside(files: Files, deletions: PendingDeletions) -> OSError | None:
    """One log's trouble does not keep the others' files from their turn."""
    try:
        deletions.set_aside_all(files)
    except OSError as error:
        return error
    return None


def _lock(files: Files, path: str) -> OpenFile:
    """Takes the lock that a Kafka broker takes too, so that we keep each other out. It does not keep a process from
    itself (and closing the file, opened twice, would give the lock up), hence `locked`."""
    if path in files.locked:
        raise DirectoryLocked(f"{path} is locked: this process uses the directory already")
    lock = files.open_data(path, create=True)
    if not files.try_lock(lock.fileno()):
        lock.close()
        raise DirectoryLocked(f"{path} is locked: another broker uses this directory")
    files.locked.add(path)
    return lock


def read_meta_properties(path: str) -> dict[str, str]:
    """What `LogDirectory.meta_properties` says, of a directory that no broker has open."""
    return checkpoints.read_properties(current().files, os.path.join(path, checkpoints.META_PROPERTIES))
