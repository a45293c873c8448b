"""`GET /topics/{topic}/stream`: the records of all partitions as they come, as lines of JSON or server-sent events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import Final

from tidemark.broker.core.owners import Owner, Owners
from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.consuming import OFFSET_MAX, QUERY, start_of
from tidemark.broker.http.decoding import Decoded, Wanted, wanted_by
from tidemark.broker.http.fetching import Fetching
from tidemark.broker.http.inputs import fail, query_integer
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, StreamedResponse
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.http.standing import CHECK_SECONDS, Standing
from tidemark.environment import monotonic
from tidemark.protocol.messages.fetch import PartitionData

QUEUED_MAX: Final = 1  # chunks that the reader has not taken yet, before the next is decoded
ALIVE_SECONDS: Final = 15.0
WAIT_MS: Final = 5_000
READ_BYTES: Final = 64 << 10
CHUNK_CHARS_MAX: Final = 4 << 20
PARTITIONS_MAX: Final = 1_000
FOLLOWED_MAX: Final = 20_000  # partitions, by all streams of a node: each is a task, of some kilobytes
PARTITION_MAX: Final = (1 << 31) - 1
UNAVAILABLE_SECONDS_MAX: Final = 30.0  # how long a stream waits for a partition's next leader
RETRY_SECONDS: Final = 0.2
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"


class Streaming:
    def __init__(self, calls: Calls, leaders: Leaders, fetching: Fetching, *, quotas: HttpQuotas) -> None:
        self._calls = calls
        self._leaders = leaders
        self._fetching = fetching
        self._quotas = quotas
        self._followed_count = 0  # partitions, by all streams together
        self._owners: Owners[_Stream] = Owners()  # of streams, with the number of their partitions

    def routes(self) -> list[HttpRoute]:
        return [HttpRoute("GET", "/topics/{topic}/stream", self.stream, query=(*QUERY, "partition"))]

    async def stream(self, request: HttpRequest) -> StreamedResponse:
        topic, caller = request.path_values["topic"], self._calls.caller(request)
        wanted = wanted_by(request)
        count = await self._leaders.partition_count(topic, caller)
        only = query_integer(request, "partition", default=-1, least=0, most=PARTITION_MAX)
        if only >= count:
            await self._leaders.refuse_partition(topic, only, caller)
        chosen = range(count) if only < 0 else [only]
        if len(chosen) > PARTITIONS_MAX:
            raise fail(f"{topic} has more than {PARTITIONS_MAX} partitions: ask for one of them (partition=).")
        resumed = _positions(request.headers.get("last-event-id", ""))
        starts = {}
        for index in chosen:
            found = resumed.get(index)
            starts[index] = await start_of(self._fetching, request, topic, index, caller) if found is None else found
        self._make_room(self._owners.of(caller), len(chosen))
        as_events = EVENTS in request.headers.get("accept", "")
        standing = Standing(request, caller, self._leaders)
        stream = _Stream(self._fetching, self._quotas, topic, caller, standing, wanted, starts, as_events=as_events)
        if only < 0:
            stream.known_count = lambda: self._leaders.known_count(topic)
        headers = (("Cache-Control", "no-store"), ("X-Accel-Buffering", "no"))
        kind = EVENTS if as_events else NDJSON
        return StreamedResponse(chunks=self._counted(stream, caller), content_type=kind, headers=headers)

    def _make_room(self, owner: Owner[_Stream], count: int) -> None:
        """For a stream of so many partitions: if there is none, whoever follows most gives up the oldest of its
        streams. Raises Problem."""
        while self._followed_count + count > FOLLOWED_MAX:
            most = self._owners.largest(owner, count)
            if most is None:
                raise _too_many_streams()
            oldest = next(iter(most.items))
            oldest.end(_too_many_streams())
            self._forget(most, oldest)

    async def _counted(self, stream: _Stream, caller: HttpCaller) -> AsyncIterator[bytes]:
        owner = self._owners.of(caller)
        self._followed_count += stream.followed_count
        owner.size += stream.followed_count
        self._owners.add(owner, stream)

        def grow(count: int) -> None:
            if stream.followed_count + count > PARTITIONS_MAX:
                raise fail(
                    f"The topic has more than {PARTITIONS_MAX} partitions by now: ask for one of them (partition=)."
                )
            self._make_room(owner, count)
            if stream in owner.items:  # or it has made way itself
                self._followed_count += count
                owner.size += count

        stream.grow = grow
        chunks = stream.chunks()
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            if stream in owner.items:
                self._forget(owner, stream)
            await chunks.aclose()

    def _forget(self, owner: Owner[_Stream], stream: _Stream) -> None:
        self._followed_count -= stream.followed_count
        owner.size -= stream.followed_count
        self._owners.remove(owner, stream)


class _Stream:
    """A task per partition fetches; what they find goes through one short queue to the one reader."""

    def __init__(
        self,
        fetching: Fetching,
        quotas: HttpQuotas,
        topic: str,
        caller: HttpCaller,
        standing: Standing,
        wanted: Wanted,
        positions: dict[int, int],
        *,
        as_events: bool,
    ) -> None:
        self._fetching = fetching
        self._quotas = quotas
        self._topic = topic
        self._caller = caller
        self._standing = standing
        self._wanted = wanted
        self._positions = positions
        self._as_events = as_events
        self._queue: asyncio.Queue[tuple[int, Decoded] | Problem] = asyncio.Queue(QUEUED_MAX)
        self._tasks: list[asyncio.Future[None]] = []
        self._end: Problem | None = None  # why it is over
        # Where all partitions are followed: how many there are by now, and what counts those that were added.
        self.known_count: Callable[[], int] = lambda: len(self._positions)
        self.grow: Callable[[int], None] = lambda _count: None
        # One partition's records at a time are in memory, however many there are; and nothing more is read before the
        # client has read these.
        self._turn = asyncio.Lock()

    @property
    def followed_count(self) -> int:
        return len(self._positions)

    def end(self, problem: Problem) -> None:
        """Nothing more is read for it; its reader is told when it has what was sent so far."""
        self._end = problem
        self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        self._begin(self._positions)
        told_at = monotonic()
        try:
            while True:
                found = await self._next()
                if isinstance(found, Problem):
                    yield self._last_words(found)
                    return
                if found is not None:
                    chunk, found = self._text(*found), None
                    yield chunk
                    self._queue.task_done()
                elif monotonic() < told_at + ALIVE_SECONDS:
                    continue
                else:
                    yield b":\n\n" if self._as_events else b"\n"
                told_at = monotonic()
        finally:
            self._stop()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, indexes: Iterable[int]) -> None:
        for index in indexes:
            follow = self._quotas.timed(self._caller, self._follow(index))
            self._tasks.append(asyncio.ensure_future(follow))

    def _follow_added(self) -> None:
        """Partitions that were added since: all that is in them came later than the stream. Raises Problem."""
        before, count = len(self._positions), self.known_count()
        if count <= before or self._end is not None:
            return
        self.grow(count - before)
        if self._end is None:
            added = range(before, count)
            self._positions |= dict.fromkeys(added, 0)
            self._begin(added)

    async def _next(self) -> tuple[int, Decoded] | Problem | None:
        """What its reader gets next, if it may still have it. None: nothing for now."""
        found = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                found = await self._queue.get()
        try:
            await self._standing.check(self._topic)
            self._follow_added()
        except Problem as problem:
            return problem
        return self._end or found

    async def _follow(self, index: int) -> None:
        offset = self._positions[index]
        served_at = monotonic()
        try:
            while True:
                await self._quotas.wait_to_fetch(self._caller)
                async with self._turn:
                    pass  # another node's answer would wait in memory
                try:
                    data = await self._read(index, offset)
                except Problem as problem:
                    if problem.status != 503 or monotonic() > served_at + UNAVAILABLE_SECONDS_MAX:
                        raise
                    await asyncio.sleep(RETRY_SECONDS)  # its leader is gone: there will be another
                    continue
                served_at = monotonic()
                async with self._turn:
                    found = await self._fetching.decoder.decoded(
                        data,
                        self._topic,
                        index,
                        offset,
                        self._wanted,
                        chars_max=CHUNK_CHARS_MAX,
                        holder=self._standing.holder,
                    )
                    del data
                    self._quotas.fetched(self._caller, found.size_bytes)
                    offset = found.next_offset
                    if found.records:
                        await self._queue.put((index, found))
                        del found
                        await self._queue.join()
        except Problem as problem:
            await self._queue.put(problem)
        except Exception as error:
            await self._queue.put(Problem(500, "UNKNOWN_SERVER_ERROR", f"Reading failed: {type(error).__name__}."))

    async def _read(self, index: int, offset: int) -> PartitionData:
        return await self._fetching.read(
            self._topic,
            index,
            offset,
            self._caller,
            limit_bytes=self._quotas.fetch_bytes_max(self._caller, READ_BYTES),
            wait_ms=WAIT_MS,
            isolation=self._wanted.isolation,
        )

    def _text(self, index: int, found: Decoded) -> bytes:
        self._positions[index] = found.next_offset
        self._standing.holder.release(found.chars)  # from here on the connection counts it
        lines = found.records
        if not self._as_events:
            return "".join(f"{line}\n" for line in lines).encode(errors="replace")
        # The last event of a chunk carries where every partition stands: a client that comes back sends it.
        events = "".join(f"data: {line}\n\n" for line in lines[:-1])
        standing = ",".join(f"{partition}={offset}" for partition, offset in self._positions.items())
        return f"{events}id: {standing}\ndata: {lines[-1]}\n\n".encode(errors="replace")

    def _last_words(self, problem: Problem) -> bytes:
        document = problem.document()
        return b"event: error\ndata: %b\n\n" % document if self._as_events else b"%b\n" % document


def _too_many_streams() -> Problem:
    told = f"Streams follow {FOLLOWED_MAX} partitions at most, all together."
    return Problem(503, "BROKER_NOT_AVAILABLE", told, headers=(("Retry-After", "10"),))


def _positions(text: str) -> dict[int, int]:
    """Of a Last-Event-ID."""
    found = {}
    for pair in text.split(",") if text else ():
        partition, _, offset = pair.partition("=")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise fail("Last-Event-ID: it is not one of this stream's.")
        found[int(partition[:10])] = min(int(offset[:19]), OFFSET_MAX)
    return found
