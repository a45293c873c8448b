"""A flush in three steps, so that the waiting can happen on another thread.

flush = log.begin_flush()    # on the log's thread: what must be synced, up to which offset
flush()                      # anywhere: syncs, touches no state of the log
log.finish_flush(flush)      # on the log's thread: the recovery point moves
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.storage.deletion import PendingDeletions
from tidemark.storage.files import Files, OpenFile
from tidemark.storage.segment import Segment

NO_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class Changes(NamedTuple):
    """How often what a log consists of has changed: a flush covers the changes made before it began, and no others."""

    directory: int = 0  # files made, renamed or removed
    epochs: int = 0  # leader-epoch-checkpoint rewritten
    parent: int = 0  # the log's own directory made
    deletions: int = 0  # segments deleted that were not synced


class Flush:
    """Everything that has to reach the disk before the recovery point may move to `up_to`."""

    __slots__ = (
        "_deletions",
        "_directories",
        "_files",
        "_open",
        "_paths",
        "changes",
        "done",
        "failure",
        "generation",
        "is_over",
        "segments",
        "up_to",
    )

    def __init__(
        self,
        files: Files,
        *,
        up_to: int,
        generation: int,
        changes: Changes,
        open_files: Sequence[OpenFile],
        paths: Sequence[str] = (),
        directories: Sequence[str] = (),
        segments: Sequence[Segment] = (),
        deletions: PendingDeletions | None = None,
    ) -> None:
        """`deletions`: of files that are to lose their names first, so that these do not come back."""
        self._deletions = deletions
        self._files = files
        self._open = open_files
        self._paths = paths
        self._directories = directories
        self.up_to = up_to
        self.generation = generation
        self.changes = changes
        self.segments = segments
        self.done = False
        self.is_over = False  # done or not
        self.failure: OSError | None = None

    def __call__(self) -> None:
        try:
            self._sync()
        except OSError as error:
            # A failed fsync is final: the kernel may have dropped the pages and would report the next one as fine. One
            # that lacked a descriptor did not begin, and can be repeated.
            self.failure = None if error.errno in NO_DESCRIPTORS else error
            raise
        finally:
            self.is_over = True
            self._open = ()  # here, on a thread: the last to close a file that was deleted since frees its blocks
        self.done = True

    def _sync(self) -> None:
        if self._deletions is not None:
            self._deletions.set_aside_all(self._files)
        for file in self._open:
            self._files.fdatasync(file.fileno())
        for path in self._paths:
            try:
                self._files.sync_file(path)
            except FileNotFoundError:
                continue  # retention removed the segment since: nothing to sync
        for directory in self._directories:
            try:
                self._files.sync_directory(directory)
            except FileNotFoundError:
                continue  # the partition was deleted since
