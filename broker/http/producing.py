"""`POST /topics/{topic}/records`: one record or many, appended as a Kafka producer would."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.http.addresses import Addresses
from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.inputs import Fields, body_of, fail
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse, json_response
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.record_json import record_of
from tidemark.broker.http.router import HttpRoute
from tidemark.environment import monotonic, new_random, wall_clock_ms
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.murmur2 import partition_of_key
from tidemark.protocol.records import Record, build_batch

VERSION: Final = 12  # the last that names topics
RECORDS_MAX: Final = 10_000
TIMEOUT_MS_MAX: Final = 30_000
RETRIES: Final = 20
RETRY_SECONDS: Final = 0.1
REMEMBERED_MAX: Final = 10_000  # requests with an Idempotency-Key
REMEMBERED_SECONDS: Final = 600.0
KEY_CHARS_MAX: Final = 200
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
# Nothing was appended: another broker leads by now, or none does yet.
NOT_APPENDED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    )
)


# It may be appended, or may be yet.
MAY_BE_APPENDED: Final = frozenset(
    ("REQUEST_TIMED_OUT", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "BROKER_NOT_AVAILABLE", "UNKNOWN_SERVER_ERROR")
)


@dataclass(slots=True)
class _Placed:
    """What goes to one partition: records, and their places in the request."""

    places: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


class Producing:
    def __init__(self, calls: Calls, leaders: Leaders, *, addresses: Addresses, quotas: HttpQuotas) -> None:
        self._calls = calls
        self._leaders = leaders
        self._addresses = addresses
        self._quotas = quotas
        self._next_partition = new_random().randrange(1 << 16)
        self._remembered = RememberedAnswers(clock=monotonic)

    def routes(self) -> list[HttpRoute]:
        return [HttpRoute("POST", "/topics/{topic}/records", self.produce, query=("redirect",))]

    async def produce(self, request: HttpRequest) -> HttpResponse:
        key = request.headers.get("idempotency-key")
        if key is None:
            return await self._produce(request)
        if not 0 < len(key) <= KEY_CHARS_MAX:
            raise fail(f"Idempotency-Key: it must have 1 to {KEY_CHARS_MAX} characters.")
        named = (str(request.principal), request.path_values["topic"], key)
        return await self._remembered.once(named, request.body, lambda: self._produce(request))

    async def _produce(self, request: HttpRequest) -> HttpResponse:
        topic, caller = request.path_values["topic"], self._calls.caller(request)
        self._quotas.admit_produce(caller)
        wishes, acks, timeout_ms = await finished(_parse(request))
        count = await self._leaders.partition_count(topic, caller, create=True)
        for wanted, _ in wishes:
            if wanted is not None and wanted >= count:
                await self._leaders.refuse_partition(topic, wanted, caller)
        placed = self._place(wishes, count)
        if len(placed) == 1:
            self._addresses.redirect_if_asked(request, self._leaders.leader_of(topic, next(iter(placed))))
        results: list[dict[str, Any]] = [{} for _ in wishes]
        appends = [self._append(topic, index, each, acks, timeout_ms, caller) for index, each in placed.items()]
        # A task for each only where there are several.
        outcomes = await asyncio.gather(*appends) if len(appends) > 1 else [await appends[0]]
        for (index, each), outcome in zip(placed.items(), outcomes, strict=True):
            for number, place in enumerate(each.places):
                results[place] = _result(index, outcome, number)
        return _answer(results, acks)

    def _place(self, wishes: list[tuple[int | None, Record]], count: int) -> dict[int, _Placed]:
        """By the partition asked for, by the key's hash, or all of a request that have neither to one, in turns."""
        placed: dict[int, _Placed] = {}
        self._next_partition += 1
        for place, (wanted, record) in enumerate(wishes):
            if wanted is None:
                keyed = None if record.key is None else partition_of_key(record.key, count)
                wanted = self._next_partition % count if keyed is None else keyed
            each = placed.setdefault(wanted, _Placed())
            each.places.append(place)
            each.records.append(record)
        return placed

    async def _append(
        self, topic: str, index: int, placed: _Placed, acks: int, timeout_ms: int, caller: HttpCaller
    ) -> int | Problem:
        """The offset of the first record, or what went wrong. It is tried again only where nothing was appended."""
        problem = Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader.")
        batch = memoryview(build_batch(placed.records))
        self._quotas.produced(caller, len(batch))
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])
        for _ in range(RETRIES):
            leader = self._leaders.leader_of(topic, index)
            if leader >= 0:
                asked = ProduceRequest(acks=acks or 1, timeout_ms=timeout_ms, topic_data=[data])
                try:
                    answer = await self._calls.ask(asked, ProduceResponse, caller, version=VERSION, node_id=leader)
                except Problem as error:
                    return error
                result = answer.responses[0].partition_responses[0]
                if not result.error_code:
                    return result.base_offset
                problem = Problem.of(result.error_code, result.error_message)
                if result.error_code not in NOT_APPENDED:
                    return problem
            await asyncio.sleep(RETRY_SECONDS)
        return problem


def _parse(request: HttpRequest) -> Job[tuple[list[tuple[int | None, Record]], int, int]]:
    """Records with the partitions that they ask for; acks; time-out. Others have their turn in between."""
    body = body_of(request)
    now_ms = wall_clock_ms()
    acks_text, timeout_ms = "all", TIMEOUT_MS_MAX
    if isinstance(body, dict) and "records" in body:
        fields = Fields(body, where="body")
        given = fields.listing("records")
        asked = fields.take("acks")
        acks_text = "all" if asked is None else str(asked)
        timeout_ms = fields.integer("timeout_ms", default=TIMEOUT_MS_MAX, least=1, most=TIMEOUT_MS_MAX)
        fields.refuse_others()
    else:
        given = body if isinstance(body, list) else [body]
    if acks_text not in ACKS:
        raise fail("body.acks: it must be all, 1 or 0.")
    if not 0 < len(given) <= RECORDS_MAX:
        raise fail(f"body.records: it must have 1 to {RECORDS_MAX} records.")
    wishes = []
    for number, each in enumerate(given):
        wishes.append(record_of(each, now_ms=now_ms, where=f"records[{number}]"))
        yield
    return wishes, ACKS[acks_text], timeout_ms


def _result(index: int, outcome: int | Problem, number: int) -> dict[str, Any]:
    if isinstance(outcome, Problem):
        return {"partition": index, "error": outcome.error, "detail": outcome.detail, "status": outcome.status}
    return {"partition": index, "offset": outcome + number}


def _answer(results: list[dict[str, Any]], acks: int) -> HttpResponse:
    failed = [each for each in results if "error" in each]
    if len(failed) == len(results):
        first = failed[0]
        raise Problem(first["status"], first["error"], first["detail"])
    if acks == 0:
        return HttpResponse(status=204)
    return json_response({"offsets": results}, status=207 if failed else 200)


class RememberedAnswers:
    """What was answered to requests that carry an Idempotency-Key, for those that are sent again."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answers: OrderedDict[tuple[str, str, str], tuple[float, int, asyncio.Task[HttpResponse]]] = OrderedDict()

    async def once(self, key: tuple[str, str, str], body: bytes, answer: Callable[[], Any]) -> HttpResponse:
        self._forget()
        found = self._answers.get(key)
        if found is None:
            # A task of its own: the client may be gone before its records are appended, and ask again.
            task = asyncio.ensure_future(answer())
            self._answers[key] = (self._clock(), hash(body), task)
            task.add_done_callback(lambda done: self._answered(key, done))
        elif found[1] != hash(body):
            raise Problem(422, "INVALID_REQUEST", "This Idempotency-Key came with another body before.")
        else:
            task = found[2]
        return await asyncio.shield(task)

    def _answered(self, key: tuple[str, str, str], done: asyncio.Task[HttpResponse]) -> None:
        """What failed may be tried again, but not where nobody knows whether it was appended."""
        if done.cancelled():
            self._answers.pop(key, None)
            return
        error = done.exception()
        if isinstance(error, Problem) and error.error not in MAY_BE_APPENDED:
            self._answers.pop(key, None)

    def _forget(self) -> None:
        oldest = self._clock() - REMEMBERED_SECONDS
        while self._answers:
            key, (since, _, task) = next(iter(self._answers.items()))
            if (since >= oldest and len(self._answers) < REMEMBERED_MAX) or not task.done():
                return
            del self._answers[key]
