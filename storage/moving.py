"""A log moves to another directory while it goes on.

    files are copied                 # anywhere, segment by segment: those that are not written to any more
    future = open_future(…)          # anywhere: a log of its own beside the others, `topic-N.<id>-future`
    future.append_replicated(…)      # anywhere: what was written meanwhile, until little is missing
    relocate(log, future, …)         # on the log's thread: the rest, and the log goes on in the new files

A future directory carries a mark from its beginning. So a start that finds the partition in two directories knows which
of them is the newer: the one with the mark. The mark goes when the old directory is gone for good.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tidemark.environment import random_bytes
from tidemark.storage import names
from tidemark.storage.config import LogConfig
from tidemark.storage.errors import StorageError
from tidemark.storage.files import Files

if TYPE_CHECKING:
    from tidemark.storage.log import Log
    from tidemark.storage.segment import Segment

MARK = "tidemark.moved"
_COPY_BYTES = 1 << 20
_ID_BYTES = 16


class MoveFailed(StorageError):
    """The log stays where it is."""


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
        source = self._files.open_to_read(self._segment.path(names.LOG))
        try:
            length = min(_COPY_BYTES, self._segment.size - self._position)
            data = self._files.read_range(source.fileno(), position=self._position, length=length)
        finally:
            source.close()
        if len(data) != length:
            raise MoveFailed(f"{self._segment.path(names.LOG)} ends at byte {self._position + len(data)}")
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
        for part in parts:
            future.append_replicated(part.file.read_at(part.position, part.length))
    if future.end_offset != log.end_offset:
        raise MoveFailed(f"{future.directory} ends at offset {future.end_offset}, not at {log.end_offset}")
    if future.start_offset < log.start_offset:
        future.delete_before(log.start_offset)
    if future.recovery_point < log.recovery_point:
        future.flush()  # where acknowledgements wait for the disk, it has to have what it had


def relocate(log: Log, future: Log, *, path: str) -> None:
    """The log goes on in the files of `future`, whose directory becomes `path`. On the log's thread. Raises OSError and
    changes nothing, if the directory cannot be renamed."""
    assert future.end_offset == log.end_offset, "it is to hold the same records"
    future.epochs.restore(log.epochs.entries())  # those of batches that are gone, too
    log.files.rename(future.directory, path)
    # Nothing may fail from here on: a start would believe the new directory, and the log would go on in the old one.
    future.renamed_to(path)
    log.adopt(future)
