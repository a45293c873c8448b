"""Batches of a Fetch answer, as JSON records: which of them a reader wants, and which it must not see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.http.calls import bytes_of
from tidemark.broker.http.inputs import fail, query_choice
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.record_json import ANY_FORMAT, FORMATS, record_text
from tidemark.protocol.messages.fetch import PartitionData
from tidemark.protocol.records import BatchHeader, Record, iter_batches, iter_records, read_end_transaction

CONTROL, TRANSACTIONAL = 0x20, 0x10
ISOLATION: Final = ("read_uncommitted", "read_committed")
FORMATS_READ: Final = (*FORMATS, ANY_FORMAT)
FORMATS_DEFAULT: Final = {"key": "string", "value": ANY_FORMAT}
DECOMPRESSED_BYTES_MAX: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How records are wanted: in which formats, and which of them."""

    formats: Mapping[str, str]
    key: bytes | None = None
    header: tuple[str, bytes] | None = None
    isolation: int = 0
    names_topic: bool = False  # where records of several topics come together

    def takes(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        return self.header is None or self.header in record.headers


def wanted_by(request: HttpRequest) -> Wanted:
    """By a request's query."""
    formats = {
        name: query_choice(request, f"{name}_format", FORMATS_READ, default=default)
        for name, default in FORMATS_DEFAULT.items()
    }
    key, header = request.query.get("key"), request.query.get("header")
    if header is not None and ":" not in header:
        raise fail("header: it must be name:value.")
    named = None if header is None else (header.partition(":")[0], header.partition(":")[2].encode())
    return Wanted(
        formats=formats,
        key=None if key is None else key.encode(),
        header=named,
        isolation=ISOLATION.index(query_choice(request, "isolation", ISOLATION, default=ISOLATION[0])),
    )


class Decoded(NamedTuple):
    records: list[str]  # as JSON
    next_offset: int  # after what was looked at
    size_bytes: int  # of what was looked at, as it is stored


async def decoded(data: PartitionData, topic: str, partition: int, offset: int, wanted: Wanted) -> Decoded:
    """The records from `offset` on."""
    raw = await bytes_of(data.records)
    records, following = await finished(_decode(raw, _Aborted(data), topic, partition, offset, wanted))
    return Decoded(records, following, len(raw))


def _decode(
    raw: bytes, aborted: _Aborted, topic: str, partition: int, offset: int, wanted: Wanted
) -> Job[tuple[list[str], int]]:
    found: list[str] = []
    following = offset
    named = topic if wanted.names_topic else None
    for header, batch in iter_batches(raw, partial_tail=True):
        following = max(following, header.last_offset + 1)
        if header.attributes & CONTROL:
            aborted.ended(header, batch)
            continue
        if aborted.covers(header):
            continue
        for record in iter_records(batch, limit_bytes=DECOMPRESSED_BYTES_MAX):
            if record.offset >= offset and wanted.takes(record):
                found.append(record_text(record, topic=named, partition=partition, formats=wanted.formats))
            yield
    return found, following


class _Aborted:
    """Which batches of an answer belong to transactions that were aborted: read_committed readers do not get them."""

    def __init__(self, data: PartitionData) -> None:
        self._coming = sorted(
            ((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True
        )
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        while self._coming and self._coming[-1][0] <= header.base_offset:
            self._open.add(self._coming.pop()[1])
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._open

    def ended(self, header: BatchHeader, batch: memoryview) -> None:
        self.covers(header)
        marker = read_end_transaction(batch)
        if marker is not None and not marker.commit:
            self._open.discard(header.producer_id)
