"""Reading a partition of `__consumer_offsets` back: every record, in order, a piece at a time."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Final

from broker.groups.records import UnknownRecord, decode
from broker.groups.shard import Shard
from protocol.records import InvalidBatch, Record, iter_batches, iter_records, read_end_transaction
from protocol.schema import DecodeError
from storage import Log

log = logging.getLogger(__name__)


TURN: Final = 1_000  # records, some ten milliseconds, before others get their turn


def replay_log(shard: Shard, partition_log: Log, *, piece_bytes: int) -> Iterator[int]:
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
                    _replay_marker(shard, batch)
                    continue
                producer_id = header.producer_id if header.is_transactional else None
                for record in iter_records(batch):
                    count += 1
                    _replay(shard, producer_id, record)
                if count >= TURN:
                    yield count
                    count = 0
    yield count


def _replay(shard: Shard, producer_id: int | None, record: Record) -> None:
    try:
        fact = decode(record.key or b"", record.value)
    except UnknownRecord as error:
        log.warning("the record at offset %d is skipped: %s", record.offset, error)
    except DecodeError as error:
        log.error("the record at offset %d cannot be read and is skipped: %s", record.offset, error)
    else:
        if producer_id is None:
            shard.replay(fact)
        else:
            shard.replay_pending(producer_id, fact)


def _replay_marker(shard: Shard, batch: memoryview) -> None:
    try:
        marker = read_end_transaction(batch)
    except InvalidBatch:  # compaction has left nothing but the batch's header
        return
    if marker is not None:
        shard.end_transaction(marker.producer_id, commit=marker.commit)
