"""What of a log the disk may not have yet, and whether a sync that ends now still speaks of the log as it is."""

from __future__ import annotations

import os
from collections.abc import Collection

from tidemark.storage import names
from tidemark.storage.deletion import PendingDeletions
from tidemark.storage.epochs import EpochCache
from tidemark.storage.files import Files
from tidemark.storage.flush import Changes, Flush
from tidemark.storage.segment import Segment


class Unsynced:
    """`segments` are those that were rolled since the last flush; the active one always counts as unsynced."""

    __slots__ = (
        "_deletions",
        "_directory_changes",
        "_generation",
        "_parent_changes",
        "_synced",
        "_under_way",
        "_unsynced_deletions",
        "segments",
    )

    def __init__(self, segments: list[Segment], deletions: PendingDeletions, *, changed: bool, created: bool) -> None:
        self.segments = segments
        self._deletions = deletions
        self._directory_changes = int(changed)
        self._parent_changes = int(created)
        self._unsynced_deletions = 0  # of segments that were never synced
        self._synced = Changes()
        self._generation = 0  # how often the log was truncated
        self._under_way: list[Flush] = []

    def note_new_segment(self, *, after: Segment | None) -> None:
        """The active segment is a new one. `after`: the one before it, unless that was empty and is replaced."""
        self.note_new_file()
        if after is not None:
            self.segments.append(after)

    def note_new_file(self) -> None:
        self._directory_changes += 1

    @property
    def generation(self) -> int:
        return self._generation

    def note_truncation(self) -> None:
        """Syncs under way no longer count: they cover bytes that are gone, and others may take their place."""
        self._generation += 1

    def continue_after(self, other: Unsynced) -> None:
        """The log goes on in these files: syncs of the others that are under way say nothing about them."""
        self._generation = other._generation + 1
        self._parent_changes += 1  # the directory has another name

    def forget_segment(self, segment: Segment) -> None:
        """It is deleted, or replaced. If it was never synced, and a power cut brought it back, it would be torn, and a
        start would take what follows for never synced, too: the next flush sees to it that it does not come back."""
        if segment in self.segments:
            self.segments.remove(segment)
            self._unsynced_deletions += 1

    def keep_segments(self, kept: Collection[Segment]) -> None:
        self.segments = [segment for segment in self.segments if segment in kept]

    def has_changes(self, epochs: EpochCache) -> bool:
        """Whether something other than appended bytes is unsynced."""
        return self._changes(epochs) != self._synced

    def _changes(self, epochs: EpochCache) -> Changes:
        return Changes(self._directory_changes, epochs.changes, self._parent_changes, self._unsynced_deletions)

    @property
    def failure(self) -> OSError | None:
        """Of a flush that ended on its thread, and that the log has not taken note of yet."""
        return next((each.failure for each in self._under_way if each.failure is not None), None)

    def begin_flush(
        self, files: Files, directory: str, *, up_to: int, active: Segment, epochs: EpochCache, sealed: bool
    ) -> Flush:
        unflushed = tuple(self.segments)
        indexed = (*unflushed, active) if sealed else unflushed
        paths = [segment.path(suffix) for segment in indexed for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)]
        if unflushed:  # as in Kafka: the producers' states at the beginning of a segment last as long as the one before
            paths.extend(segment.path(names.SNAPSHOT) for segment in (*unflushed, active))
        if sealed:
            paths.append(os.path.join(directory, names.file_name(up_to, names.SNAPSHOT)))
        with_aborts = (segment for segment in (*unflushed, active) if segment.has_aborts)
        paths.extend(segment.path(names.ABORTED_INDEX) for segment in with_aborts)
        changes, synced, directories = self._changes(epochs), self._synced, []
        if changes.epochs > synced.epochs:
            paths.append(epochs.path)
        has_deleted = changes.deletions > synced.deletions
        if changes.directory > synced.directory or changes.epochs > synced.epochs or has_deleted:
            directories.append(directory)
        if changes.parent > synced.parent:
            directories.append(os.path.dirname(directory))
        flush = Flush(
            files,
            up_to=up_to,
            generation=self._generation,
            changes=changes,
            open_files=[segment.open_file() for segment in (*unflushed, active)],
            paths=paths,
            directories=directories,
            segments=unflushed,
            deletions=self._deletions if has_deleted else None,
        )
        self._under_way = [each for each in self._under_way if each.failure is not None or not each.is_over]
        self._under_way.append(flush)
        return flush

    def finish_flush(self, flush: Flush) -> bool:
        """False if the log was truncated since the flush began: it says nothing about the log as it is now."""
        assert flush.done, "call the flush before finishing it"
        self._under_way = [each for each in self._under_way if each is not flush]
        if flush.generation != self._generation:
            return False
        self.segments = [segment for segment in self.segments if segment not in flush.segments]
        # Only what had changed when the flush began: a segment begun since is still to be synced.
        self._synced = Changes(*map(max, self._synced, flush.changes))
        return True
