"""An append in three steps, so that the waiting for the disk can happen on another thread:

pending = log.begin_append(…)    # on the log's thread: the batch is checked, and knows its offsets
pending()                        # anywhere: one write(2), touches no state of the log
log.finish_append(pending)       # on the log's thread: the batch is in the log, or the log is as before

In between the log is as it was: nobody sees the batch. Whatever must know where the log ends (another append, a new
epoch, a truncation, the close) finishes the append first, and waits for the thread if it has to (`Log.settle`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.environment import monotonic, new_lock
from tidemark.storage.errors import LogOffline, StorageError
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
        "_is_over",
        "_lock",
        "appended",
        "directory",
        "header",
        "marker",
        "position",
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
    ) -> None:
        self.segment = segment
        self.directory = segment.directory
        self.position = segment.size
        self.size = size
        self.header = header
        self.marker = marker
        self.appended = appended  # what is told of it, once it is in the log
        self.seconds = 0.0  # what the write took
        self._batch = batch
        self._file = segment.open_file()  # kept open, whatever becomes of the log meanwhile
        self._error: Exception | None = None
        self._is_over = False
        self._lock = new_lock()

    def __call__(self) -> None:
        """Writes, and never raises. Whoever comes second waits for the first."""
        with self._lock:
            if self._is_over:
                return
            begun = monotonic()
            try:
                self.segment.put(self._file.fileno(), self._batch, position=self.position)
            except StorageError as error:
                self._error = error
            except Exception as error:  # whoever waits must hear of it, and nobody knows what is in the file
                self._error = LogOffline(f"{self.directory}: a write failed: {error!r}")
            self.seconds = monotonic() - begun
            self._is_over = True

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
