"""Reading a topic's records, one partition at a time, with a long poll."""

from __future__ import annotations

from typing import Final

from tidemark.broker.http.addresses import Addresses
from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.decoding import ANSWER_CHARS_MAX, wanted_by
from tidemark.broker.http.fetching import EARLIEST, LATEST, Fetching
from tidemark.broker.http.inputs import path_integer, query_integer
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.http.standing import Standing
from tidemark.environment import monotonic

BYTES_DEFAULT: Final = 1 << 20
BYTES_MAX: Final = 4 << 20
WAIT_MS_MAX: Final = 60_000
OFFSET_MAX: Final = (1 << 63) - 1
SPECIAL: Final = {"earliest": EARLIEST, "latest": LATEST}
QUERY: Final = ("offset", "timestamp", "key", "header", "key_format", "value_format", "isolation")


class Consuming:
    def __init__(
        self, calls: Calls, leaders: Leaders, fetching: Fetching, *, addresses: Addresses, quotas: HttpQuotas
    ) -> None:
        self._calls = calls
        self._leaders = leaders
        self._fetching = fetching
        self._addresses = addresses
        self._quotas = quotas

    def routes(self) -> list[HttpRoute]:
        path = "/topics/{topic}/partitions/{partition}/records"
        return [HttpRoute("GET", path, self.fetch, query=(*QUERY, "max_bytes", "wait_ms", "redirect"))]

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        topic, partition = request.path_values["topic"], path_integer(request, "partition")
        caller, wanted = self._calls.caller(request), wanted_by(request)
        limit_bytes = query_integer(request, "max_bytes", default=BYTES_DEFAULT, least=1, most=BYTES_MAX)
        wait_ms = query_integer(request, "wait_ms", default=0, least=0, most=WAIT_MS_MAX)
        if partition >= await self._leaders.partition_count(topic, caller):
            await self._leaders.refuse_partition(topic, partition, caller)
        self._addresses.redirect_if_asked(request, self._leaders.leader_of(topic, partition))
        self._quotas.admit_fetch(caller)
        limit_bytes = self._quotas.fetch_bytes_max(caller, limit_bytes)
        offset = await start_of(self._fetching, request, topic, partition, caller)
        until = monotonic() + wait_ms / 1000
        standing = Standing(request, caller, self._leaders)
        while True:
            data = await self._fetching.read(
                topic,
                partition,
                offset,
                caller,
                limit_bytes=limit_bytes,
                wait_ms=max(int((until - monotonic()) * 1000), 0),
                isolation=wanted.isolation,
            )
            await standing.check(topic)
            found = await self._fetching.decoder.decoded(
                data,
                topic,
                partition,
                offset,
                wanted,
                chars_max=ANSWER_CHARS_MAX,
                holder=request.holder,
            )
            self._quotas.fetched(caller, found.size_bytes)
            if found.records or monotonic() >= until:
                break
            offset = found.next_offset
            await self._quotas.wait_to_fetch(caller)
        ends = f'"high_watermark":{data.high_watermark},"start_offset":{data.log_start_offset}'
        parts = list(found.records) or [""]
        parts[0] = '{"records":[' + parts[0]
        parts[-1] += f'],"next_offset":{found.next_offset},{ends}}}'
        request.holder.release(found.chars)  # from here on the connection counts it
        return HttpResponse(body=",".join(parts).encode(errors="replace"))  # many megabytes, perhaps: one copy fewer


async def start_of(fetching: Fetching, request: HttpRequest, topic: str, partition: int, caller: HttpCaller) -> int:
    """The offset that a request's query says to begin at."""
    if "timestamp" in request.query:
        timestamp = query_integer(request, "timestamp", default=0, least=0, most=OFFSET_MAX)
        return await fetching.offset_from(topic, partition, timestamp, caller)
    text = request.query.get("offset", "earliest")
    if text in SPECIAL:
        return await fetching.offset_at(topic, partition, SPECIAL[text], caller)
    return query_integer(request, "offset", default=0, least=0, most=OFFSET_MAX)
