"""Batches of a Fetch answer, as JSON records: which of them a reader wants, and which it must not see."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from tidemark.broker.core.sliced_work import Job, finished_in_background
from tidemark.broker.http.calls import bytes_of
from tidemark.broker.http.held_answers import HeldAnswers, Holder
from tidemark.broker.http.inputs import fail, query_choice
from tidemark.broker.http.messages import HttpRequest
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.record_json import ANY_FORMAT, FORMATS, record_text
from tidemark.protocol.messages.fetch import PartitionData
from tidemark.protocol.records import (
    BatchHeader,
    InvalidRecord,
    Record,
    iter_batches,
    payload_of,
    read_end_transaction,
    records_or_pauses,
)

CONTROL, TRANSACTIONAL, COMPRESSION = 0x20, 0x10, 0x07
ISOLATION: Final = ("read_uncommitted", "read_committed")
FORMATS_READ: Final = (*FORMATS, ANY_FORMAT)
ANY_BYTES: Final = "surrogateescape"  # as a query has those that are not UTF-8
FORMATS_DEFAULT: Final = {"key": "string", "value": ANY_FORMAT}
DECOMPRESSED_BYTES_MAX: Final = 64 << 20
SMALL_BATCH_BYTES: Final = 16 << 10  # compressed
DECOMPRESSED_AT_ONCE_BYTES: Final = 256 << 10  # on the event loop; more is decompressed by a thread
LARGE_BATCHES_MAX: Final = 4  # that are in memory at once
LONG_READ_BYTES: Final = 256 << 10
LONG_READS_MAX: Final = 8  # that become JSON at once: each has its bytes in memory, and up to four times as much
SHORT_READS_MAX: Final = 32  # likewise
CROWDED_CHARS: Final = 128 << 10  # of each, when there is no room for more: batches are not decompressed for a record
ANSWER_CHARS_MAX: Final = 16 << 20


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
    named = None if header is None else (header.partition(":")[0], header.partition(":")[2].encode(errors=ANY_BYTES))
    return Wanted(
        formats=formats,
        key=None if key is None else key.encode(errors=ANY_BYTES),
        header=named,
        isolation=ISOLATION.index(query_choice(request, "isolation", ISOLATION, default=ISOLATION[0])),
    )


class Decoded(NamedTuple):
    records: list[str]  # as JSON
    next_offset: int  # after what was looked at
    size_bytes: int  # of what was looked at, as it is stored
    chars: int  # of the records: held for whoever asked, who releases them


class Decoder:
    def __init__(self, room: HeldAnswers) -> None:
        self._room = room
        # A few kilobytes may hold gigabytes when decompressed, and anybody may read them over many connections.
        self._large = asyncio.Semaphore(LARGE_BATCHES_MAX)
        self._long = asyncio.Semaphore(LONG_READS_MAX)
        self._short = asyncio.Semaphore(SHORT_READS_MAX)

    async def decoded(
        self,
        data: PartitionData,
        topic: str,
        partition: int,
        offset: int,
        wanted: Wanted,
        *,
        chars_max: int,
        holder: Holder,
    ) -> Decoded:
        """The records from `offset` on: until their JSON has `chars_max` characters, or there is no room for more, and
        one at least."""
        size_bytes = _size_of(data)
        own_bytes = 0 if isinstance(data.records, list) else size_bytes  # of another node's answer
        holder.hold(own_bytes)
        try:
            async with self._long if size_bytes > LONG_READ_BYTES else self._short:
                await self._room.room(holder.held_bytes)
                reading = _Reading(
                    offset,
                    wanted,
                    topic=topic,
                    partition=partition,
                    chars_max=chars_max,
                    room=self._room,
                    holder=holder,
                )
                return await self._decoded(data, reading)
        finally:
            holder.release(own_bytes)

    async def _decoded(self, data: PartitionData, reading: _Reading) -> Decoded:
        raw = await bytes_of(data.records)
        aborted = _Aborted(data)
        for header, batch in iter_batches(raw, partial_tail=True):
            if reading.ends():
                break
            if header.attributes & CONTROL:
                aborted.ended(header, batch)
            elif not aborted.covers(header):
                try:
                    await self._read(reading, header, batch)
                except InvalidRecord as error:
                    if reading.records:
                        break  # of what follows them who asks for it is told
                    raise reading.unreadable(header, error) from None
            if not reading.is_over:
                reading.next_offset = max(reading.next_offset, header.last_offset + 1)
        return Decoded(reading.records, reading.next_offset, len(raw), reading.chars)

    async def _read(self, reading: _Reading, header: BatchHeader, batch: memoryview) -> None:
        if not header.attributes & COMPRESSION:
            await finished_in_background(reading.read(header, payload_of(batch)))
            return
        if len(batch) <= SMALL_BATCH_BYTES:
            with contextlib.suppress(InvalidRecord):  # most of them are small, decompressed, too
                payload = payload_of(batch, limit_bytes=DECOMPRESSED_AT_ONCE_BYTES)
                await finished_in_background(reading.read(header, payload))
                return
        async with self._large:
            expand = partial(payload_of, batch, limit_bytes=DECOMPRESSED_BYTES_MAX)
            payload = await asyncio.get_running_loop().run_in_executor(None, expand)
            await finished_in_background(reading.read(header, payload))


def _size_of(data: PartitionData) -> int:
    records: Any = data.records
    return sum(each.length for each in records) if isinstance(records, list) else len(records or b"")


class _Reading:
    """What was found so far."""

    def __init__(
        self,
        offset: int,
        wanted: Wanted,
        *,
        topic: str,
        partition: int,
        chars_max: int,
        room: HeldAnswers,
        holder: Holder,
    ) -> None:
        self.records: list[str] = []
        self.next_offset = offset
        self.chars = 0
        self.is_over = False
        self._offset = offset
        self._wanted = wanted
        self._where = f"{topic}-{partition}"
        self._topic = topic if wanted.names_topic else None
        self._partition = partition
        self._chars_max = chars_max
        self._room = room
        self._holder = holder

    def ends(self) -> bool:
        """Whether it is enough: once it is, it stays so, also if there is room again."""
        if self.chars >= (min(self._chars_max, CROWDED_CHARS) if self._room.is_full else self._chars_max):
            self.is_over = bool(self.records)
        return self.is_over

    def unreadable(self, header: BatchHeader, error: InvalidRecord) -> Problem:
        """Of a batch that a client wrote so: the broker checks the sum of its bytes, not what they mean."""
        return Problem(
            500,
            "CORRUPT_MESSAGE",
            f"{self._where}: what was written into the batch at offset {header.base_offset} cannot be read ({error})."
            f" The next begins at offset {header.last_offset + 1}.",
        )

    def read(self, header: BatchHeader, payload: memoryview) -> Job[None]:
        wanted, least = self._wanted, header.base_offset
        for record in records_or_pauses(header, payload):
            if record is None:
                yield
                continue
            if not least <= record.offset <= header.last_offset:
                raise InvalidRecord(f"offset {record.offset} is out of turn")
            least = record.offset + 1
            if record.offset < self._offset:
                yield
                continue
            if self.ends():
                return
            if wanted.takes(record):
                text = yield from record_text(
                    record, topic=self._topic, partition=self._partition, formats=wanted.formats
                )
                self.records.append(text)
                self.chars += len(text)
                self._holder.hold(len(text))
            self.next_offset = record.offset + 1
            yield


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
