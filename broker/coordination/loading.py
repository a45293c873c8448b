"""Replays the log of a coordinator's partition: every record, in order, a piece at a time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from tidemark.broker.coordination.record import CoordinatorRecord, UnknownRecord
from tidemark.protocol.records import InvalidBatch, Record, iter_batches, iter_records, read_end_transaction
from tidemark.protocol.schema import DecodeError
from tidemark.storage import Log

log = logging.getLogger(__name__)

RECORDS_PER_TURN: Final = 1_000  # about ten milliseconds of work before other tasks may run

Decode = Callable[[bytes, bytes | None], CoordinatorRecord]


class Replays(Protocol):
    def replay(self, record: CoordinatorRecord) -> None: ...


class ReplaysTransactions(Protocol):
    """A shard whose records may be part of a transaction (committed offsets are)."""

    def replay_pending(self, producer_id: int, record: CoordinatorRecord) -> None: ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None: ...


def replay_log(
    core: Replays,
    partition_log: Log,
    *,
    decode: Decode,
    piece_bytes: int,
    transactions: ReplaysTransactions | None = None,
) -> Iterator[int]:
    """Yields the number of records every now and then, so that the caller can do something else in between."""
    offset, count = partition_log.start_offset, 0
    while offset < partition_log.end_offset:
        slices = partition_log.read(offset=offset, limit_bytes=piece_bytes)
        if not slices:
            break
        for each in slices:
            data = os.pread(each.file.fileno(), each.length, each.position)
            for header, batch in iter_batches(data):
                offset = header.next_offset
                if header.is_control:
                    _replay_marker(transactions, batch)
                    continue
                producer_id = header.producer_id if header.is_transactional else None
                for record in iter_records(batch):
                    count += 1
                    if (decoded := _read(decode, record)) is None:
                        continue
                    if producer_id is None or transactions is None:
                        core.replay(decoded)
                    else:
                        transactions.replay_pending(producer_id, decoded)
                if count >= RECORDS_PER_TURN:
                    yield count
                    count = 0
    yield count


def _read(decode: Decode, record: Record) -> CoordinatorRecord | None:
    try:
        return decode(record.key or b"", record.value)
    except UnknownRecord as error:
        log.warning("the record at offset %d is skipped: %s", record.offset, error)
    except DecodeError as error:
        log.error("the record at offset %d cannot be read and is skipped: %s", record.offset, error)
    return None


def _replay_marker(transactions: ReplaysTransactions | None, batch: memoryview) -> None:
    try:
        marker = read_end_transaction(batch)
    except InvalidBatch:  # compaction has left nothing but the batch's header
        return
    if marker is not None and transactions is not None:
        transactions.end_transaction(marker.producer_id, commit=marker.commit)
