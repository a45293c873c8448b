"""`POST /topics/{topic}/records`: one record or many, appended as a Kafka producer would."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tidemark.broker.core.sliced_work import Job, at_once, finished_in_background
from tidemark.broker.http.addresses import Addresses
from tidemark.broker.http.calls import Calls, HttpCaller
from tidemark.broker.http.idempotence import Producer, producer_of
from tidemark.broker.http.inputs import Fields, body_of, fail, read_in_turn
from tidemark.broker.http.leaders import Leaders
from tidemark.broker.http.messages import HttpRequest, HttpResponse
from tidemark.broker.http.problems import Problem
from tidemark.broker.http.quotas import HttpQuotas
from tidemark.broker.http.record_json import record_of, simple_record
from tidemark.broker.http.router import HttpRoute
from tidemark.broker.http.sliced_json import ENCODER
from tidemark.broker.http.waits import waiting
from tidemark.broker.replication.role_assignment import LEADERSHIP_IS_OVER
from tidemark.environment import new_random, wall_clock_ms
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.murmur2 import partition_of_key_in_slices
from tidemark.protocol.records import HEADER_SIZE, Record, build_batch_in_slices, read_header

T = TypeVar("T")

VERSION: Final = 12  # the last that names topics
RECORDS_MAX: Final = 10_000
TIMEOUT_MS_MAX: Final = 30_000
RECORDS_AT_ONCE: Final = 16  # where each takes a microsecond: a look at the clock takes as long as some of them
SHORT_BYTES: Final = 4 << 10
RETRIES: Final = 20
RETRY_SECONDS: Final = 0.1
PLACE_END: Final = 16  # of a batch's header: its offset and leader epoch stand before
ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
# Another broker leads by now, or none does yet. Most often nothing was appended, see `_may_be_appended`.
NOT_LED: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    records: list[Record]
    wanted: dict[int, int]  # the partition that is asked for, by the record's place: most ask for none
    acks: int
    timeout_ms: int

    @property
    def partition_max(self) -> int:
        """-1: none is asked for."""
        return max(self.wanted.values(), default=-1)


@dataclass(slots=True)
class _Placed:
    """What goes to one partition: records, and their places in the request."""

    places: list[int] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    batch: bytearray = field(default_factory=bytearray)


class Producing:
    def __init__(self, calls: Calls, leaders: Leaders, *, addresses: Addresses, quotas: HttpQuotas) -> None:
        self._calls = calls
        self._leaders = leaders
        self._addresses = addresses
        self._quotas = quotas
        self._next_partition = new_random().randrange(1 << 16)

    def routes(self) -> list[HttpRoute]:
        return [HttpRoute("POST", "/topics/{topic}/records", self.produce, query=("redirect",))]

    async def produce(self, request: HttpRequest) -> HttpResponse:
        topic, caller = request.path_values["topic"], self._calls.caller(request)
        producer = producer_of(request, topic)
        self._quotas.admit_produce(caller)
        is_short = len(request.body) <= SHORT_BYTES
        asked = at_once(_parse(request)) if is_short else await read_in_turn(_parse(request), request)
        count = await self._leaders.partition_count(topic, caller, create=True)
        if asked.partition_max >= count:
            await self._leaders.refuse_partition(topic, asked.partition_max, caller)
        placed = await self._done(self._place(asked, count, producer), request)
        if len(placed) == 1:
            self._addresses.redirect_if_asked(request, self._leaders.leader_of(topic, next(iter(placed))))
        appends = [self._append(topic, index, each.batch, asked, caller) for index, each in placed.items()]
        # A task for each only where there are several.
        outcomes = await asyncio.gather(*appends) if len(appends) > 1 else [await appends[0]]
        failed = [each for each in outcomes if isinstance(each, Problem)]
        if len(failed) == len(outcomes):
            raise failed[0]
        if asked.acks == 0:
            return HttpResponse(status=204)
        told = _told(dict(zip(placed, outcomes, strict=True)), placed, len(asked.records))
        text = await self._done(told, request)
        return HttpResponse(status=207 if failed else 200, body=text.encode(errors="replace"))

    async def _done(self, job: Job[T], request: HttpRequest) -> T:
        """What a job returns: of a short request at once, it would not be worth a look at the clock."""
        return at_once(job) if len(request.body) <= SHORT_BYTES else await finished_in_background(job)

    def _place(self, asked: _Asked, count: int, producer: Producer) -> Job[dict[int, _Placed]]:
        """What goes to each partition: the one asked for, the one of the key's hash; and records of a request that have
        neither go to one, the next one's to the next."""
        placed: dict[int, _Placed] = {}
        self._next_partition += 1
        keyless = (self._next_partition if producer.choice is None else producer.choice) % count
        for place, record in enumerate(asked.records):
            wanted = asked.wanted.get(place)
            if wanted is None:
                wanted = keyless if record.key is None else (yield from partition_of_key_in_slices(record.key, count))
            each = placed.setdefault(wanted, _Placed())
            each.places.append(place)
            each.records.append(record)
            if not place % RECORDS_AT_ONCE:
                yield
        for each in placed.values():
            each.batch = yield from build_batch_in_slices(
                each.records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequence,
            )
        return placed

    async def _append(
        self, topic: str, index: int, batch: bytearray, asked: _Asked, caller: HttpCaller
    ) -> int | Problem:
        """The offset of the first record, or what went wrong. It is tried again where that cannot write it twice."""
        problem: Problem | None = None
        header = bytes(batch[:HEADER_SIZE])
        is_known = read_header(batch).producer_id >= 0  # by the Idempotency-Key: whoever has it already says so
        self._quotas.produced(caller, len(batch))
        data = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            acks=asked.acks or 1,
            timeout_ms=asked.timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        for _ in range(RETRIES):
            leader = self._leaders.leader_of(topic, index)
            if leader >= 0:
                try:
                    answer = await self._calls.ask(request, ProduceResponse, caller, version=VERSION, node_id=leader)
                except Problem as error:
                    return error
                result = answer.responses[0].partition_responses[0]
                if not result.error_code:
                    return result.base_offset
                if result.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    return Problem(422, "INVALID_REQUEST", "This Idempotency-Key came with another body before.")
                problem = self._leaders.refusal_by_leader(topic, index, result.error_code, result.error_message)
                if result.error_code not in NOT_LED:
                    return problem
                if not is_known and _may_be_appended(batch, header, result.error_message):
                    return problem
                batch[:HEADER_SIZE] = header  # the next leader is to get it as it came
            with waiting():
                await asyncio.sleep(RETRY_SECONDS)
        return problem or Problem.of(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{index} has no leader.")


def _may_be_appended(batch: bytearray, header: bytes, message: str | None) -> bool:
    """By this node, which has given it its place then, or by another: a leadership may end between the append and its
    acknowledgement."""
    return batch[:PLACE_END] != header[:PLACE_END] or message == LEADERSHIP_IS_OVER


def _parse(request: HttpRequest) -> Job[_Asked]:
    body = yield from body_of(request)
    now_ms = wall_clock_ms()
    acks_text, timeout_ms = "all", TIMEOUT_MS_MAX
    if isinstance(body, dict) and "records" in body:
        fields = Fields(body, where="body")
        given = fields.listing("records")
        asked = fields.take("acks")
        acks_text = "all" if asked is None else str(asked) if isinstance(asked, (int, str)) else ""
        timeout_ms = fields.integer("timeout_ms", default=TIMEOUT_MS_MAX, least=1, most=TIMEOUT_MS_MAX)
        fields.refuse_others()
    else:
        given = body if isinstance(body, list) else [body]
    if acks_text not in ACKS:
        raise fail("body.acks: it must be all, 1 or 0.")
    if not 0 < len(given) <= RECORDS_MAX:
        raise fail(f"body.records: it must have 1 to {RECORDS_MAX} records.")
    records: list[Record] = []
    wanted: dict[int, int] = {}
    for number, each in enumerate(given):
        record = simple_record(each, now_ms=now_ms)
        if record is None:
            partition, record = yield from record_of(each, now_ms=now_ms, where=f"records[{number}]")
            if partition is not None:
                wanted[number] = partition
        records.append(_traced(record, request) if request.record_headers else record)
        yield
    return _Asked(records=records, wanted=wanted, acks=ACKS[acks_text], timeout_ms=timeout_ms)


def _traced(record: Record, request: HttpRequest) -> Record:
    """The record as part of its request's trace, unless it says itself which it belongs to."""
    names = {name for name, _ in request.record_headers}
    if any(name in names for name, _ in record.headers):
        return record
    return record._replace(headers=[*record.headers, *request.record_headers])


def _told(outcomes: dict[int, int | Problem], placed: dict[int, _Placed], count: int) -> Job[str]:
    """The answer: one result for each record, in the order of the request."""
    results = [""] * count
    for index, outcome in outcomes.items():
        for number, place in enumerate(placed[index].places):
            results[place] = _result(index, outcome, number)
            if not number % RECORDS_AT_ONCE:
                yield
    return f'{{"offsets":[{",".join(results)}]}}'


def _result(index: int, outcome: int | Problem, number: int) -> str:
    """As JSON."""
    if isinstance(outcome, Problem):
        told = {"partition": index, "error": outcome.error, "detail": outcome.detail, "status": outcome.status}
        return ENCODER.encode(told)
    return f'{{"partition":{index},"offset":{outcome + number}}}'
