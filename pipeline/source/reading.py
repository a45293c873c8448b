"""A piece of a partition as Arrow batches: from its files if they are at hand, else over the protocol."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from tidemark.pipeline.source.arrow import record_batch
from tidemark.pipeline.source.client import ReadFailed, ReadingClient
from tidemark.pipeline.source.cutting import cut, payload_groups
from tidemark.pipeline.source.fetching import Fetching
from tidemark.pipeline.source.options import ReadOptions
from tidemark.pipeline.source.planning import Range
from tidemark.pipeline.source.segments import FilesUnusable, Place, SegmentFiles
from tidemark.pipeline.source.walking import AbortedTransactions, Walk
from tidemark.protocol.records import InvalidBatch

_log = logging.getLogger(__name__)


def read_range(
    wanted: Range, options: ReadOptions, *, topic_id: bytes, place: Place | None
) -> Iterator[pa.RecordBatch]:
    """Every visible record of the range, once and in order."""
    first = wanted.first
    if place is not None:
        try:
            place.check()
            with SegmentFiles(place, first=first, end=wanted.end) as files:
                aborted = files.aborted() if options.committed else AbortedTransactions()
                for data, seen in files.read(aborted):
                    yield from _rows(data, seen, wanted, options)
                    first = max(first, seen.next_offset)
            return
        except FilesUnusable as reason:
            if options.access == "files":
                raise ReadFailed(f"tidemark.access=files, but: {reason}.") from reason
            _log.info("reading %s-%d over the protocol: %s", wanted.topic, wanted.partition, reason)
    elif options.access == "files":
        raise ReadFailed(f"tidemark.access=files, but no broker says where {wanted.topic}-{wanted.partition} is.")
    with ReadingClient(options.bootstrap, timeout_s=options.timeout_ms / 1000, security=options.security) as cluster:
        fetching = Fetching(
            cluster,
            topic=wanted.topic,
            topic_id=topic_id,
            partition=wanted.partition,
            committed=options.committed,
            fetch_bytes=options.fetch_bytes,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for data, seen in fetching.read(first=first, end=wanted.end):
            yield from _rows(data, seen, wanted, options)


def _rows(data: memoryview, seen: Walk, wanted: Range, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    try:
        for payloads in payload_groups(data, seen.batches):
            records = cut(payloads).between(wanted.first, wanted.end)
            if len(records):
                yield record_batch(
                    records, topic=wanted.topic, partition=wanted.partition, with_headers=options.with_headers
                )
    except InvalidBatch as error:
        raise ReadFailed(f"{wanted.topic}-{wanted.partition}: {error}.") from error
