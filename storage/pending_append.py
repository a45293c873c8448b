"""An append in three steps, so that the waiting for the disk can happen on another thread:

pending = log.begin_append(…)    # on the log's thread: the batch is checked, and knows its offsets
pending()                        # anywhere: mostly one write(2), touches no state of the log
                                 # or, piece by piece: while not pending.write(bytes_max=…): …
log.finish_append(pending)       # on the log's thread: the batch is in the log, or the log is as before

In between the log is as it was: nobody sees the batch. Whatever must know where the log ends (another append, a new
epoch, a truncation, the close) finishes the append first, and waits for the thread if it has to (`Log.settle`).

What else is due goes with it: a new segment (see `rolling`), or entries of the indexes that are to be saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemark.environment import monotonic, new_lock
from tidemark.storage.errors import LogOffline, StorageError
from tidemark.storage.rolling import PendingRoll, cannot_roll
from tidemark.storage.segment import Segment

if TYPE_CHECKING:
    from tidemark.protocol.records import BatchHeader, EndTransaction
    from tidemark.storage.log import Appended, Log


class PendingAppend:
    """One batch that has its place at the end of the log, and is not there yet."""

    __slots__ = (
        "_batch",
        "_error",
        "_file",
        "_is_abandoned",
        "_is_over",
        "_lock",
        "_naming",
        "_written_bytes",
        "appended",
        "directory",
        "header",
        "marker",
        "position",
        "roll",
        "save",
        "seconds",
        "segment",
        "size",
    )

    def __init__(
        self,
        segment: Segment,
        batch: bytearray | memoryview,
        *,
        size: int,
        header: BatchHeader,
        marker: EndTransaction | None,
        appended: Appended,
        roll: PendingRoll | None = None,
    ) -> None:
        self.segment = segment
        self.roll = roll  # to `segment`, if that is a new one
        self.directory = segment.directory
        self.position = segment.size
        self.size = size
        self.header = header
        self.marker = marker
        self.appended = appended  # what is told of it, once it is in the log
        self.seconds = 0.0  # what the write took
        self._batch = memoryview(batch)
        self._written_bytes = 0
        self._file = segment.open_file() if roll is None else None  # kept open, whatever becomes of the log meanwhile
        self.save = segment.indexes.begin_save_when_many()  # last: what has begun must be finished
        self._error: Exception | None = None
        self._is_over = False
        self._lock = new_lock()
        self._naming = None if roll is None and self.save is None else new_lock()  # held while a file is named
        self._is_abandoned = False

    def __call__(self) -> None:
        """Writes what is not written yet, and never raises. Whoever comes second waits for the first."""
        self.write(bytes_max=len(self._batch))

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to be done but to write the batch."""
        return self.roll is None and self.save is None

    def write(self, *, bytes_max: int) -> bool:
        """As a call, but at most so much of the batch. Whether it is over."""
        with self._lock:
            if self._is_over:
                return True
            begun = monotonic()
            try:
                if not self._written_bytes:
                    self._prepare()
                file = self._file or self.segment.open_file()
                piece = self._batch[self._written_bytes : self._written_bytes + bytes_max]
                self.segment.put(file.fileno(), piece, position=self.position)
                self._written_bytes += len(piece)
            except StorageError as error:
                self._error = error
            except Exception as error:  # whoever waits must hear of it, and nobody knows what is in the file
                self._error = LogOffline(f"{self.directory}: a write failed: {error!r}")
            self.seconds += monotonic() - begun
            self._is_over = self._error is not None or self._written_bytes == len(self._batch)
            return self._is_over

    def _prepare(self) -> None:
        if self.roll is not None:
            self._begin_segment(self.roll)
        if self.save is not None:
            self._by_name(self.save.if_possible)

    def _begin_segment(self, roll: PendingRoll) -> None:
        try:
            for step in roll.steps:
                self._by_name(step)
        except OSError as error:
            raise cannot_roll(self.segment, error) from error

    def _by_name(self, step: Callable[[], None]) -> None:
        assert self._naming is not None
        with self._naming:
            if self._is_abandoned:
                raise LogOffline(f"{self.directory} is not this log's any more")
            step()

    def abandon(self) -> None:
        """The log's directory gets another name, and another log may get this one: no file is made there any more."""
        if self._naming is not None:
            with self._naming:
                self._is_abandoned = True

    def fail(self, error: Exception) -> None:
        """It is not in the log after all."""
        self._error = error

    @property
    def error(self) -> Exception | None:
        return self._error

    def outcome(self) -> Appended:
        """What became of it, as an answer or an exception."""
        if self._error is not None:
            raise self._error
        return self.appended


def take_in(log: Log, pending: PendingAppend) -> None:
    """A batch has been written by another thread: what follows from that. Raises why it is not in the log."""
    if isinstance(pending.error, LogOffline):
        log.fail(str(pending.error))
    log.check_online()
    if pending.roll is not None:
        pending.roll.finish(log)  # also if the batch was not written then
    if pending.save is not None:
        pending.segment.indexes.finish_save(pending.save)
    base_offset, last_offset, _, _ = pending.outcome()
    segment, header = pending.segment, pending.header
    assert (segment.size, log.end_offset) == (pending.position, base_offset), "something else was appended"
    segment.size += pending.size
    segment.note_batch(
        position=pending.position,
        size=pending.size,
        base_offset=base_offset,
        last_offset=last_offset,
        timestamp=header.max_timestamp,
    )
    log.end_offset = last_offset + 1
    if header.producer_id >= 0:
        log.note_producer(header, pending.marker, first_offset=base_offset, last_offset=last_offset)
