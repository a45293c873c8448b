"""A log moves to another directory while it goes on.

    files are copied                 # anywhere, segment by segment: those that are not written to any more
    future = open_future(…)          # anywhere: a log of its own beside the others, `topic-N.<id>-future`
    future.append_replicated(…)      # anywhere: what was written meanwhile, until little is missing
    relocate(log, future, …)         # on the log's thread: the rest, and the log goes on in the new files

A future directory carries a mark from its beginning. So a start that finds the partition in two directories knows which
of them is the newer: the one with the mark. The mark goes when the old directory is gone for good. The old directory in
turn gets a note, before the log goes on in the new one, of where that is: if the new disk is lost before the old
directory is removed, what is there must not be taken for the whole log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidemark.environment import random_bytes
from tidemark.storage import names
from tidemark.storage.config import LogConfig
from tidemark.storage.errors import StorageError, is_disk_failure
from tidemark.storage.files import Files

if TYPE_CHECKING:
    from tidemark.storage.log import Log
    from tidemark.storage.segment import Segment
    from tidemark.storage.slices import FileSlice

MARK = "tidemark.moved"
NOTE = "tidemark.moving"
_COPY_BYTES = 1 << 20
_ID_BYTES = 16


class MoveFailed(StorageError):
    """The log stays where it is."""


class SourceFailed(MoveFailed):
    """The disk that it is on does not read: nothing is said about the other one."""


@contextmanager
def reading_source(path: str) -> Iterator[None]:
    """Whatever reads the log that moves does so in here. A file that is gone is for the caller to explain."""
    try:
        yield
    except OSError as error:
        if is_disk_failure(error):
            raise SourceFailed(f"{path} cannot be read: {error}") from error
        raise


def future_name(*, topic: str, partition: int) -> str:
    """As Kafka names it."""
    suffix = f".{random_bytes(_ID_BYTES).hex()}{names.FUTURE_DIRECTORY}"
    return names.directory_name(topic=topic, partition=partition)[: 255 - len(suffix)] + suffix


def parse_future(name: str) -> tuple[str, int] | None:
    """The partition that a future directory is of."""
    stem, dot, _ = name.removesuffix(names.FUTURE_DIRECTORY).rpartition(".")
    return names.parse_directory(stem) if dot and name.endswith(names.FUTURE_DIRECTORY) else None


def begin(files: Files, directory: str) -> None:
    """Makes the directory, with its mark."""
    files.make_directory(directory)
    files.overwrite(os.path.join(directory, MARK), b"")
    files.sync_directory(directory)


# Copying


class SegmentCopy:
    """The files of one segment that is not written to any more. Whoever calls `step` decides how fast it goes."""

    def __init__(self, files: Files, segment: Segment, *, directory: str) -> None:
        self._files = files
        self._segment = segment
        self._target = directory
        self._position = 0

    def step(self) -> int:
        """Copies a part of the log's file, for any thread. Returns how many bytes; 0 when all files are copied."""
        target = self._path(names.LOG)
        if self._position >= self._segment.size:
            self._finish()
            return 0
        path = self._segment.path(names.LOG)
        length = min(_COPY_BYTES, self._segment.size - self._position)
        with reading_source(path):
            source = self._files.open_to_read(path)
            try:
                data = self._files.read_range(source.fileno(), position=self._position, length=length)
            finally:
                source.close()
        if len(data) != length:
            raise MoveFailed(f"{path} ends at byte {self._position + len(data)}")
        self._files.append_to(target, data)
        self._position += length
        return length

    def _finish(self) -> None:
        self._files.append_to(self._path(names.LOG), b"")
        self._files.sync_file(self._path(names.LOG))
        self._files.set_modified(self._path(names.LOG), self._files.modified_ms(self._segment.path(names.LOG)))
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX, names.ABORTED_INDEX, names.SNAPSHOT):
            copy_file(self._files, self._segment.path(suffix), self._path(suffix))

    def undo(self) -> None:
        for suffix in (*names.SEGMENT_SUFFIXES, names.SNAPSHOT):
            self._files.remove(self._path(suffix))

    def _path(self, suffix: str) -> str:
        return os.path.join(self._target, names.file_name(self._segment.base_offset, suffix))


def copy_file(files: Files, source: str, target: str) -> None:
    """A small one, if it is there."""
    try:
        with reading_source(source):
            data = files.read_all(source)
    except FileNotFoundError:
        return
    files.overwrite(target, data)
    files.sync_file(target)


def open_future(log: Log, directory: str, *, active_base: int, start_offset: int, config: LogConfig) -> Log:
    """The log in the new directory, when all segments before `active_base` are copied. For any thread."""
    from tidemark.storage.log import Log as NewLog

    files = log.files
    for name in (names.EPOCHS, names.PARTITION_METADATA, names.file_name(active_base, names.SNAPSHOT)):
        copy_file(files, os.path.join(log.directory, name), os.path.join(directory, name))
    files.overwrite(os.path.join(directory, names.file_name(active_base, names.LOG)), b"")
    files.sync_directory(directory)
    future = NewLog.open(
        directory,
        config=config,
        files=files,
        now_ms=log.now_ms,
        topic_id=log.topic_id,
        clean=True,
        start_offset=start_offset,
    )
    if future.end_offset != active_base:
        raise MoveFailed(f"{directory} ends at offset {future.end_offset}, and should at {active_base}")
    return future


# The end of the move


def catch_up(log: Log, future: Log) -> None:
    """What little is missing, on the log's thread."""
    log.settle()  # an append under way would go to the old files
    while future.end_offset < log.end_offset:
        parts = log.read(offset=max(future.end_offset, log.start_offset), limit_bytes=_COPY_BYTES)
        if not parts:
            raise MoveFailed(f"{log.directory} has nothing at offset {future.end_offset}")
        append_parts(log, future, parts)
    if future.end_offset != log.end_offset:
        raise MoveFailed(f"{future.directory} ends at offset {future.end_offset}, not at {log.end_offset}")
    if future.start_offset < log.start_offset:
        future.delete_before(log.start_offset)
    if future.recovery_point < log.recovery_point:
        future.flush()  # where acknowledgements wait for the disk, it has to have what it had


def append_parts(log: Log, future: Log, parts: list[FileSlice]) -> None:
    for part in parts:
        with reading_source(log.directory):
            data = part.file.read_at(part.position, part.length)
        future.append_replicated(data)


def relocate(log: Log, future: Log, *, path: str) -> None:
    """The log goes on in the files of `future`, whose directory becomes `path`. On the log's thread. Raises OSError and
    changes nothing, if the directory cannot be renamed."""
    assert future.end_offset == log.end_offset, "it is to hold the same records"
    future.epochs.restore(log.epochs.entries())  # those of batches that are gone, too
    log.files.rename(future.directory, path)
    # Nothing may fail from here on: a start would believe the new directory, and the log would go on in the old one.
    _rename(future, path)
    _adopt(log, future)


def _rename(log: Log, directory: str) -> None:
    """The log's directory has another name."""
    log.directory = directory
    for segment in log.segments:
        segment.renamed_to(directory)
    log.epochs.renamed_to(os.path.join(directory, names.EPOCHS))
    log.snapshots.renamed_to(directory)
    log.deletions.renamed_to(directory)


def _adopt(log: Log, moved: Log) -> None:
    """The log goes on in the files of another that holds the same records. Readers of the old ones keep them."""
    assert not log.is_appending, "an append would go to the old files"
    old = log.segments
    log.deletions.end()
    moved.unsynced.continue_after(log.unsynced)
    log.directory, log.files = moved.directory, moved.files
    log.cached_files = moved.cached_files
    log.segments, log.epochs, log.snapshots = moved.segments, moved.epochs, moved.snapshots
    log.unsynced, log.deletions = moved.unsynced, moved.deletions
    log.recovery_point = moved.recovery_point
    log.activate(log.segments.active)
    old.close()
