"""Reading a coordinator's partition back: every record, in order, a piece at a time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from broker.groups.records import Fact, UnknownRecord
from protocol.records import BatchHeader, iter_batches, iter_records
from protocol.schema import DecodeError
from storage import Log

log = logging.getLogger(__name__)

Decode = Callable[[bytes, bytes | None], Fact]


class Replays(Protocol):
    def replay(self, fact: Fact) -> None: ...


def replay_log(core: Replays, partition_log: Log, *, decode: Decode, piece_bytes: int) -> Iterator[int]:
    """Yields the number of records after every piece, so that others get their turn in between."""
    for batches in pieces(partition_log, piece_bytes=piece_bytes):
        count = 0
        for header, batch in batches:
            if header.is_control:
                continue
            for record in iter_records(batch):
                count += 1
                try:
                    core.replay(decode(record.key or b"", record.value))
                except UnknownRecord as error:
                    log.warning("the record at offset %d is skipped: %s", record.offset, error)
                except DecodeError as error:
                    log.error("the record at offset %d cannot be read and is skipped: %s", record.offset, error)
        yield count


def pieces(partition_log: Log, *, piece_bytes: int) -> Iterator[Iterator[tuple[BatchHeader, memoryview]]]:
    """The whole log, as far as it goes when its end is reached."""
    offset = partition_log.start_offset
    while offset < partition_log.end_offset:
        slices = partition_log.read(offset=offset, limit_bytes=piece_bytes)
        if not slices:
            return
        found = []
        for each in slices:
            data = os.pread(each.file.fileno(), each.length, each.position)
            found += list(iter_batches(data))
        if not found:
            return
        offset = found[-1][0].next_offset
        yield iter(found)
