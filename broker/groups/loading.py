"""Reading a partition of `__consumer_offsets` back: every record, in order, a piece at a time."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from broker.groups.records import UnknownRecord, decode
from broker.groups.shard import Shard
from protocol.records import iter_batches, iter_records
from protocol.schema import DecodeError
from storage import Log

log = logging.getLogger(__name__)


def replay_log(shard: Shard, partition_log: Log, *, piece_bytes: int) -> Iterator[int]:
    """Yields the number of records after every piece, so that others get their turn in between."""
    offset = partition_log.start_offset
    while offset < partition_log.end_offset:
        slices = partition_log.read(offset=offset, limit_bytes=piece_bytes)
        if not slices:
            break
        count = 0
        for each in slices:
            data = os.pread(each.file.fileno(), each.length, each.position)
            for header, batch in iter_batches(data):
                offset = header.next_offset
                if header.is_control:
                    continue
                for record in iter_records(batch):
                    count += 1
                    _replay(shard, record.key, record.value, record.offset)
        yield count


def _replay(shard: Shard, key: bytes | None, value: bytes | None, offset: int) -> None:
    try:
        shard.replay(decode(key or b"", value))
    except UnknownRecord as error:
        log.warning("the record at offset %d is skipped: %s", offset, error)
    except DecodeError as error:
        log.error("the record at offset %d cannot be read and is skipped: %s", offset, error)
