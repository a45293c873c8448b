"""Reading a topic's records: one partition at a time with a long poll, or all of them as a stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.http.calls import Calls, HttpCaller, bytes_of
from tidemark.broker.http.inputs import fail, path_integer, query_choice, query_integer
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse, StreamedResponse
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.record_json import ANY_FORMAT, FORMATS, record_json
from tidemark.broker.http.router import HttpRoute
from tidemark.environment import monotonic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from tidemark.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidemark.protocol.records import BatchHeader, Record, iter_batches, iter_records, read_end_transaction

FETCH_VERSION: Final = 12  # the last that names topics
OFFSETS_VERSION: Final = 6
BYTES_DEFAULT: Final = 1 << 20
BYTES_MAX: Final = 4 << 20
WAIT_MS_MAX: Final = 60_000
REMOTE_WAIT_MS_MAX: Final = 500  # another node answers one after the other: nobody should wait long for those before
OFFSET_MAX: Final = (1 << 63) - 1
EARLIEST, LATEST = -2, -1
SPECIAL: Final = {"earliest": EARLIEST, "latest": LATEST}
CONTROL, TRANSACTIONAL = 0x20, 0x10
ISOLATION: Final = ("read_uncommitted", "read_committed")
RETRY_SECONDS: Final = 0.1
RETRIES: Final = 20
NEXT_LEADER: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE))
# A stream.
QUEUED_MAX: Final = 1  # chunks that the reader has not taken yet, before the next is decoded
ALIVE_SECONDS: Final = 15.0
STREAM_WAIT_MS: Final = 5_000
STREAM_BYTES: Final = 64 << 10
PARTITIONS_MAX: Final = 1_000
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """How records are wanted: in which formats, and which of them."""

    formats: Mapping[str, str]
    key: bytes | None = None
    header: tuple[str, bytes] | None = None
    isolation: int = 0

    def takes(self, record: Record) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        return self.header is None or self.header in record.headers


def _wanted(request: HttpRequest) -> Wanted:
    formats = {
        name: query_choice(request, f"{name}_format", (*FORMATS, ANY_FORMAT), default=default)
        for name, default in (("key", "string"), ("value", ANY_FORMAT))
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


class Consuming:
    def __init__(self, calls: Calls, leaders: Leaders, *, node_id: int) -> None:
        self._calls = calls
        self._leaders = leaders
        self._node_id = node_id

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("GET", "/topics/{topic}/partitions/{partition}/records", self.fetch),
            HttpRoute("GET", "/topics/{topic}/stream", self.stream),
        ]

    # -- one partition, with a long poll -----------------------------------

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        topic, partition = request.path_values["topic"], path_integer(request, "partition")
        limit_bytes = query_integer(request, "max_bytes", default=BYTES_DEFAULT, least=1, most=BYTES_MAX)
        wait_ms = query_integer(request, "wait_ms", default=0, least=0, most=WAIT_MS_MAX)
        wanted, caller = _wanted(request), self._calls.caller(request)
        await self._check_partition(topic, partition, caller)
        offset = await self._start(request, topic, partition, caller)
        until = monotonic() + wait_ms / 1000
        while True:
            left_ms = max(int((until - monotonic()) * 1000), 0)
            data = await self.read(topic, partition, offset, caller, limit_bytes, left_ms, wanted.isolation)
            records, following = await _decoded(data, partition, offset, wanted)
            if records or monotonic() >= until:
                break
            offset = following
        rest = (
            f'"next_offset":{following},"high_watermark":{data.high_watermark},"start_offset":{data.log_start_offset}'
        )
        body = f'{{"records":[{",".join(records)}],{rest}}}'
        return HttpResponse(body=body.encode(errors="replace"))

    async def _check_partition(self, topic: str, partition: int, caller: HttpCaller) -> None:
        if partition >= await self._leaders.partition_count(topic, caller):
            # Whether there is such a topic is only for those who may know: the handler says.
            await self.offset_at(topic, 0, LATEST, caller)
            raise Problem.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}.")

    async def _start(self, request: HttpRequest, topic: str, partition: int, caller: HttpCaller) -> int:
        if "timestamp" in request.query:
            timestamp = query_integer(request, "timestamp", default=0, least=0, most=OFFSET_MAX)
            found = await self.offset_at(topic, partition, timestamp, caller)
            return found if found >= 0 else await self.offset_at(topic, partition, LATEST, caller)
        text = request.query.get("offset", "earliest")
        if text in SPECIAL:
            return await self.offset_at(topic, partition, SPECIAL[text], caller)
        return query_integer(request, "offset", default=0, least=0, most=OFFSET_MAX)

    async def offset_at(self, topic: str, partition: int, timestamp: int, caller: HttpCaller) -> int:
        """The first offset of a time on, or of the log (EARLIEST), or the end (LATEST). -1: there is none."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        problem = Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader.")
        for _ in range(RETRIES):
            leader = self._leaders.leader_of(topic, partition)
            if leader >= 0:
                answer = await self._calls.ask(
                    request, ListOffsetsResponse, caller, version=OFFSETS_VERSION, node_id=leader
                )
                found = answer.topics[0].partitions[0]
                if not found.error_code:
                    return found.offset
                problem = Problem.of(found.error_code)
                if found.error_code not in NEXT_LEADER:
                    break
            await asyncio.sleep(RETRY_SECONDS)
        raise problem

    async def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        caller: HttpCaller,
        limit_bytes: int,
        wait_ms: int,
        isolation: int,
    ) -> PartitionData:
        """Raises Problem."""
        problem = Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader.")
        for _ in range(RETRIES):
            leader = self._leaders.leader_of(topic, partition)
            if leader >= 0:
                if leader != self._node_id:
                    wait_ms = min(wait_ms, REMOTE_WAIT_MS_MAX)
                asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit_bytes)
                request = FetchRequest(
                    max_wait_ms=wait_ms,
                    min_bytes=1,
                    max_bytes=limit_bytes,
                    isolation_level=isolation,
                    session_epoch=-1,
                    topics=[FetchTopic(topic=topic, partitions=[asked])],
                )
                answer = await self._calls.ask(request, FetchResponse, caller, version=FETCH_VERSION, node_id=leader)
                data = answer.responses[0].partitions[0]
                if not data.error_code:
                    return data
                problem = Problem.of(data.error_code)
                if data.error_code not in NEXT_LEADER:
                    break
            await asyncio.sleep(RETRY_SECONDS)
        raise problem

    # -- all partitions, as they come --------------------------------------

    async def stream(self, request: HttpRequest) -> StreamedResponse:
        topic, caller = request.path_values["topic"], self._calls.caller(request)
        wanted = _wanted(request)
        count = await self._leaders.partition_count(topic, caller)
        only = request.query.get("partition")
        chosen = [query_integer(request, "partition", default=0, least=0, most=count - 1)] if only else range(count)
        if len(chosen) > PARTITIONS_MAX:
            raise fail(f"{topic} has more than {PARTITIONS_MAX} partitions: ask for one of them (partition=).")
        resumed = _positions(request.headers.get("last-event-id", ""))
        starts = {}
        for index in chosen:
            starts[index] = resumed.get(index)
            if starts[index] is None:
                starts[index] = await self._start(request, topic, index, caller)
        as_events = EVENTS in request.headers.get("accept", "")
        stream = _Stream(self, topic, caller, wanted, starts, as_events=as_events)  # type: ignore[arg-type]
        headers = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))
        return StreamedResponse(chunks=stream.chunks(), content_type=EVENTS if as_events else NDJSON, headers=headers)


class _Stream:
    """A task per partition fetches; what they find goes through one short queue to the one reader."""

    def __init__(
        self,
        consuming: Consuming,
        topic: str,
        caller: HttpCaller,
        wanted: Wanted,
        positions: dict[int, int],
        *,
        as_events: bool,
    ) -> None:
        self._consuming = consuming
        self._topic = topic
        self._caller = caller
        self._wanted = wanted
        self._positions = positions
        self._as_events = as_events
        self._queue: asyncio.Queue[tuple[int, list[str], int] | Problem] = asyncio.Queue(QUEUED_MAX)
        self._turn = asyncio.Lock()  # one partition's records at a time are in memory, however many there are

    async def chunks(self) -> AsyncIterator[bytes]:
        tasks = [asyncio.ensure_future(self._follow(index)) for index in self._positions]
        try:
            while True:
                try:
                    async with asyncio.timeout(ALIVE_SECONDS):
                        found = await self._queue.get()
                except TimeoutError:
                    yield b":\n\n" if self._as_events else b"\n"
                    continue
                if isinstance(found, Problem):
                    yield self._last_words(found)
                    return
                yield self._text(*found)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, index: int) -> None:
        offset = self._positions[index]
        try:
            while True:
                data = await self._consuming.read(
                    self._topic,
                    index,
                    offset,
                    self._caller,
                    STREAM_BYTES,
                    STREAM_WAIT_MS,
                    self._wanted.isolation,
                )
                async with self._turn:
                    records, offset = await _decoded(data, index, offset, self._wanted)
                    if records:
                        await self._queue.put((index, records, offset))
        except Problem as problem:
            await self._queue.put(problem)
        except Exception as error:
            await self._queue.put(Problem(500, "UNKNOWN_SERVER_ERROR", f"Reading failed: {type(error).__name__}."))

    def _text(self, index: int, lines: list[str], following: int) -> bytes:
        self._positions[index] = following
        if not self._as_events:
            return "".join(f"{line}\n" for line in lines).encode(errors="replace")
        # The last event of a chunk carries where every partition stands: a client that comes back sends it.
        events = "".join(f"data: {line}\n\n" for line in lines[:-1])
        standing = ",".join(f"{partition}={offset}" for partition, offset in self._positions.items())
        return f"{events}id: {standing}\ndata: {lines[-1]}\n\n".encode(errors="replace")

    def _last_words(self, problem: Problem) -> bytes:
        document = problem.document()
        return b"event: error\ndata: %b\n\n" % document if self._as_events else b"%b\n" % document


def _positions(text: str) -> dict[int, int]:
    """Of a Last-Event-ID."""
    found = {}
    for pair in text.split(",") if text else ():
        partition, _, offset = pair.partition("=")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise fail("Last-Event-ID: it is not one of this stream's.")
        found[int(partition[:10])] = int(offset[:19])
    return found


# -- batches -------------------------------------------------------------------


async def _decoded(data: PartitionData, partition: int, offset: int, wanted: Wanted) -> tuple[list[str], int]:
    """The records from `offset` on, as JSON, and the offset after what was looked at."""
    raw = await bytes_of(data.records)
    return await finished(_decode(raw, _Aborted(data), partition, offset, wanted))


def _decode(raw: bytes, aborted: _Aborted, partition: int, offset: int, wanted: Wanted) -> Job[tuple[list[str], int]]:
    found: list[str] = []
    following = offset
    for header, batch in iter_batches(raw, partial_tail=True):
        following = max(following, header.last_offset + 1)
        if header.attributes & CONTROL:
            aborted.ended(header, batch)
            continue
        if aborted.covers(header):
            continue
        for record in iter_records(batch, limit_bytes=DECOMPRESSED_BYTES_MAX):
            if record.offset >= offset and wanted.takes(record):
                shown = record_json(record, partition=partition, formats=wanted.formats)
                found.append(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
            yield
    return found, following


DECOMPRESSED_BYTES_MAX: Final = 64 << 20


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
