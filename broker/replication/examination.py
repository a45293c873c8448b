"""Reading the records of a batch: what `validation` cannot tell from its header.

A few records are read at once. Many, or what is large when decompressed, would keep the event loop from its other work:
such an `Examination` is carried in a `MustWait` to the caller, to be run on a thread, slice by slice. Nothing in it
depends on the partition's log, so any thread may run it at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tidemark.broker.core.errors import Refused
from tidemark.protocol.batch import HEADER_SIZE
from tidemark.protocol.compression import LIMIT_BYTES, TooLarge, decompress
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.record import InvalidRecord, repacked
from tidemark.protocol.record_scan import RecordScan
from tidemark.protocol.records import BatchHeader, read_header, write_max_timestamp

if TYPE_CHECKING:
    from tidemark.broker.replication.validation import BatchRules

# What is examined at once takes a millisecond or two; what is more, or might be, waits for a thread.
AT_ONCE_RECORDS_MAX: Final = 1000
AT_ONCE_COMPRESSED_BYTES_MAX: Final = 32 << 10
AT_ONCE_PAYLOAD_BYTES_MAX: Final = 1 << 20

# Kafka knows no such limits: it decompresses as a stream, at a tenth of our cost per record.
RECORDS_MAX: Final = 1_000_000
EXPANSION_MAX: Final = 64  # times max.message.bytes, for what a batch may be when decompressed
EXPANDED_BYTES_MIN: Final = 16 << 20

STEP_RECORDS: Final = 250  # a quarter of a millisecond
_EVERYTHING: Final = 1 << 31

Placed = tuple[memoryview, BatchHeader]  # a batch that may be appended as it is


class MustWait(Exception):
    """The batch cannot be appended now: its records have to be read first, or other batches are before it."""

    def __init__(self, examination: Examination) -> None:
        self.examination = examination


def expanded_bytes_max(message_bytes_max: int) -> int:
    return min(LIMIT_BYTES, max(EXPANDED_BYTES_MIN, EXPANSION_MAX * message_bytes_max))


class Examination:
    """One batch, and what became of it: `outcome` once `is_done`."""

    __slots__ = ("_batch", "_error", "_header", "_now_ms", "_placed", "_rules", "is_done")

    def __init__(self, rules: BatchRules, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        self._rules = rules
        self._batch = batch
        self._header = header
        self._now_ms = now_ms
        self._placed: Placed | None = None
        self._error: BaseException | None = None
        self.is_done = False

    @classmethod
    def passed(cls, rules: BatchRules, batch: memoryview, header: BatchHeader, now_ms: int) -> Examination:
        """Of a batch that is as it should be, and only waits for its turn."""
        done = cls(rules, batch, header, now_ms)
        done._placed, done.is_done = (batch, header), True
        return done

    def at_once(self) -> Placed:
        """The outcome, now; MustWait if that takes too long."""
        header = self._header
        if header.record_count > AT_ONCE_RECORDS_MAX:
            raise MustWait(self)
        if header.compression and len(self._batch) > AT_ONCE_COMPRESSED_BYTES_MAX:
            raise MustWait(self)
        try:
            payload = self._payload(AT_ONCE_PAYLOAD_BYTES_MAX)
        except TooLarge:
            raise MustWait(self) from None
        scan = self._scan(payload)
        scan.advance(_EVERYTHING)
        return self._judged(scan, payload)

    def run(self, pause: Callable[[], None]) -> None:
        """For a thread: `pause` is called after each step, and may end it all by raising."""
        try:
            for placed in self._steps():
                if placed is not None:
                    self._placed = placed
                pause()
        except Exception as error:
            self._error = error

    def outcome(self) -> Placed:
        """The batch to append, or why not, as an exception."""
        if self._error is not None:
            raise self._error
        assert self._placed is not None
        return self._placed

    def _steps(self) -> Iterator[Placed | None]:
        header, limit = self._header, self._rules.expanded_bytes_max
        if header.record_count > RECORDS_MAX:
            raise _too_much(f"{header.record_count} records are more than {RECORDS_MAX} in a batch.")
        try:
            payload = self._payload(limit)
        except TooLarge:
            raise _too_much(f"The batch is more than {limit} bytes when decompressed.") from None
        yield None
        scan = self._scan(payload)
        while not scan.advance(STEP_RECORDS):
            yield None
        yield self._judged(scan, payload)

    def _payload(self, limit_bytes: int) -> memoryview:
        try:
            return decompress(self._header.compression, self._batch[HEADER_SIZE:], limit_bytes=limit_bytes)
        except TooLarge:
            raise
        except ValueError as error:
            raise InvalidRecord(str(error)) from error

    def _scan(self, payload: memoryview) -> RecordScan:
        earliest, latest = self._rules.timestamp_bounds(self._now_ms)
        return RecordScan(self._header, payload, earliest=earliest, latest=latest)

    def _judged(self, scan: RecordScan, payload: memoryview) -> Placed:
        rules, batch, header = self._rules, self._batch, self._header
        if scan.untimely:
            raise rules.untimely(self._now_ms, scan.untimely)
        if rules.compacts and scan.keyless:
            message = "A compacted topic takes no record without a key."
            raise Refused(ErrorCode.INVALID_RECORD, message, record_indexes=scan.keyless)
        if rules.codec is not None and header.compression != rules.codec:
            batch = memoryview(repacked(header, payload, rules.codec))
            header = read_header(batch)
            rules.check_size(header.size)
        if rules.stamps:
            return rules.stamped(batch, self._now_ms)
        if header.max_timestamp != scan.max_timestamp:
            write_max_timestamp(batch, timestamp=scan.max_timestamp)  # as Kafka does: readers search by it
            header = read_header(batch)
        return batch, header


def _too_much(message: str) -> Refused:
    # A Java producer that gets this error divides the batch and sends it again.
    return Refused(ErrorCode.MESSAGE_TOO_LARGE, message)
