"""Replays the log of a coordinator's partition: every record, in order, a piece at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from tidemark.broker.coordination.record import CoordinatorRecord
from tidemark.environment import monotonic
from tidemark.protocol.records import (
    BatchHeader,
    InvalidBatch,
    Record,
    iter_batches,
    iter_records,
    read_end_transaction,
)
from tidemark.storage import ColdRead, Log

log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.01  # of work before other tasks may run
RECORDS_PER_CHECK: Final = 50  # between two readings of the clock
SKIPPED_LOGGED_MAX: Final = 20  # by one load; all are counted
REASON_MAX: Final = 300  # characters: a reason may quote the record

COLD_ROUNDS_MAX: Final = 8  # of bringing into memory what is forgotten again; then it is read all the same

Decode = Callable[[bytes, bytes | None], CoordinatorRecord]
Work = Callable[[], None]


class Replays(Protocol):
    def replay(self, record: CoordinatorRecord) -> None: ...


class ReplaysTransactions(Protocol):
    """A shard whose records may be part of a transaction (committed offsets are)."""

    def replay_pending(self, producer_id: int, record: CoordinatorRecord) -> None: ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...


class LogReplay:
    """Replays a whole log. What cannot be read is skipped and logged: one bad record must not take a shard offline."""

    def __init__(
        self,
        shard: Replays,
        partition_log: Log,
        *,
        name: str,
        decode: Decode,
        piece_bytes: int,
        transactions: ReplaysTransactions | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.replayed = 0
        self.skipped = 0
        self._shard = shard
        self._log = partition_log
        self._name = name
        self._decode = decode
        self._piece_bytes = piece_bytes
        self._transactions = transactions
        self._clock = clock

    def run(self) -> Iterator[Work | None]:
        """Yields every few milliseconds, so that the caller can do something else in between; and, when what comes next
        is not in memory, the work that brings it there, for another thread."""
        offset, turn_ends = self._log.start_offset, self._clock() + TURN_SECONDS
        cold_rounds = 0
        while offset < self._log.end_offset:
            try:
                wait = cold_rounds >= COLD_ROUNDS_MAX
                slices = self._log.read(offset=offset, limit_bytes=self._piece_bytes, wait=wait)
            except ColdRead as cold:
                yield cold.load
                cold.finish()
                cold_rounds += 1
                continue
            if not slices:
                break
            cold_rounds = 0
            for each in slices:
                if not each.is_cached(bytes_max=each.length):
                    yield partial(each.load, bytes_max=each.length)
                data = each.file.read_at(each.position, each.length)
                for header, batch in iter_batches(data):
                    offset = header.next_offset
                    for _ in self._replay_batch(header, batch):
                        if self._clock() >= turn_ends:
                            yield None
                            turn_ends = self._clock() + TURN_SECONDS

    def _replay_batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        """Yields after every so many records: a batch may hold any number of them."""
        if header.is_control:
            self._replay_marker(batch)
            return
        producer_id = header.producer_id if header.is_transactional and self._transactions is not None else None
        try:
            for count, record in enumerate(iter_records(batch)):
                self._replay_record(record, producer_id)
                if count % RECORDS_PER_CHECK == 0:
                    yield
        except Exception as error:  # malformed, or not decompressed: where the next record begins cannot be known
            self._skip(header.base_offset, f"the rest of its batch is malformed: {error}")

    def _replay_record(self, record: Record, producer_id: int | None) -> None:
        try:
            decoded = self._decode(record.key or b"", record.value)
            if producer_id is None or self._transactions is None:
                self._shard.replay(decoded)
            else:
                self._transactions.replay_pending(producer_id, decoded)
            self.replayed += 1
        except Exception as error:  # whatever it is: the other records count
            self._skip(record.offset, f"{type(error).__name__}: {error}")

    def _skip(self, offset: int, reason: str) -> None:
        self.skipped += 1
        if self.skipped <= SKIPPED_LOGGED_MAX:
            log.error("%s: the record at offset %d is skipped: %s", self._name, offset, reason[:REASON_MAX])

    def _replay_marker(self, batch: memoryview) -> None:
        try:
            marker = read_end_transaction(batch)
        except InvalidBatch:  # compaction has left nothing but the batch's header
            return
        if marker is not None and self._transactions is not None:
            self._transactions.end_transaction(marker.producer_id, commit=marker.commit)
