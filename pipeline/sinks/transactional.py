"""One writer's part of one batch as one Kafka transaction, in a Python worker of Spark.

What must hold, whatever is killed, retried, speculated or forgotten: of each part of each batch, exactly one
transaction commits. The order of the steps is the proof:

1. A new driver first commits a Run record, and then fences every writer's transactional id (`fence_writers`).
2. A writer first initialises its transactional id, which ends every earlier attempt of the same part: it was committed
   before, or it never will be. Only then it reads which run drives the sink now and which batch was finished last.
3. If another run drives, the writer is a left-over and stops. One that initialised before the fencing of 1 cannot
   commit; one that does later sees the Run record.
4. If the batch is recorded as finished, the part was written, and there is nothing to do. If what is recorded was made
   of other records of the sources, the checkpoint is not of this history, and nothing is written (`is_finished`).
5. Rows and the record of the batch are committed in one transaction. A writer that was fenced meanwhile fails here.

A process that has committed a part keeps its producer for the same writer's next part, and leaves out 2 to 4 there:
whoever else has tried a part of this writer since, or drives the sink now, has initialised the transactional id, and so
fenced what was kept. It then fails in 5, and the next attempt begins with 2. Spark gives the parts of one writer to any
process that is idle, so the driver says which part was the last (`previous`): who has not written that one begins with
2 at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.cluster import BROKER_MAX_S
from tidemark.pipeline.sinks.batches import BY_KEY, RUNS, Ends, Part, Run, encode, is_finished, newest, partition_of
from tidemark.pipeline.sinks.transaction_time import timeout_of_attempt

if TYPE_CHECKING:
    from confluent_kafka import Producer

POLL_EVERY_ROWS = 1000
RETRY_PAUSE_S = 0.2
KEPT_MAX = 8
Row = tuple[str, bytes | None, bytes | None, list[dict[str, Any]] | None, int | None]


class LeftOver(Exception):
    """Another run of the pipeline drives this sink; this writer belongs to one that is over."""


class TransactionTooSlow(Exception):
    """The broker has aborted a transaction because its time was over."""

    def __init__(self, *, batch: int, rows: int, seconds: float, timeout_s: float) -> None:
        super().__init__(
            f"Batch {batch} is too large for one transaction: {rows} rows in {seconds:.0f} s were not all of it, and a "
            f"transaction may last {timeout_s:.0f} s."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What every writer of a batch gets. Travels to the workers, so it holds plain values only."""

    settings: dict[str, Any]
    transactional_prefix: str
    batches_topic: str
    run: str
    query: str
    batch: int
    writers: int
    transaction_timeout_s: float
    rate: float | None  # rows per second, of one writer
    attempt_seconds_max: float = 120.0
    broker_timeout_max_s: float = BROKER_MAX_S
    division: str = BY_KEY
    ends: Ends = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    previous: Mapping[int, int] = field(default_factory=dict)  # the batch that this run's writers have written last

    def transactional_id(self, writer: int | None) -> str:
        return f"{self.transactional_prefix}.{'driver' if writer is None else writer}"

    def part(self, writer: int, *, rows: int) -> Part:
        return Part(
            run=self.run,
            query=self.query,
            batch=self.batch,
            writer=writer,
            writers=self.writers,
            rows=rows,
            division=self.division,
            ends=self.ends,
            topic_ids=self.topic_ids,
        )


class KeptWriters:
    """Producers of this process that have committed, each for a later batch of its writer. Starting one anew costs a
    batch some 0.1 s."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str, float], tuple[int, Producer]] = {}

    def take(self, writing: Writing, writer: int, timeout_s: float) -> Producer | None:
        """None unless it has written this writer's last part of this run: one that has not was fenced since."""
        batch, producer = self._kept.pop(self._key(writing, writer, timeout_s), (None, None))
        return producer if batch is not None and batch == writing.previous.get(writer) else None

    def keep(self, writing: Writing, writer: int, timeout_s: float, producer: Producer) -> None:
        while len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[self._key(writing, writer, timeout_s)] = writing.batch, producer

    @staticmethod
    def _key(writing: Writing, writer: int, timeout_s: float) -> tuple[str, str, float]:
        return writing.transactional_id(writer), f"{writing.run}.{writing.query}", timeout_s


@cache
def kept_writers() -> KeptWriters:
    """One per process: Spark gives a Python worker one task after another."""
    return KeptWriters()


def write_part(
    writing: Writing, writer: int, rows: Iterable[Row], *, attempt: int = 0, kept: KeptWriters | None = None
) -> int:
    """Writes the rows, unless they are written; the number of rows written now."""
    there = _not_empty(rows)
    if there is None:
        return 0  # an empty part needs no record: it is as empty when the batch is tried again
    timeout_s = timeout_of_attempt(
        writing.transaction_timeout_s, attempt=attempt, broker_max_s=writing.broker_timeout_max_s
    )
    producer = kept.take(writing, writer, timeout_s) if kept is not None and attempt == 0 else None
    if producer is None:
        producer = _producer(writing, writer, timeout_s)
        _patiently(producer.init_transactions, writing.attempt_seconds_max)
        if _is_written(writing, writer):
            return 0
    producer.begin_transaction()
    began = time.monotonic()
    sent = _Sent()
    try:
        _send(producer, writing, there, sent)
        part = writing.part(writer, rows=sent.rows)
        _produce(producer, writing.batches_topic, *encode(part), partition=partition_of(writer))
        _patiently(producer.commit_transaction, writing.attempt_seconds_max)
    except BaseException as error:
        _abandon(producer)
        seconds = time.monotonic() - began
        if seconds >= timeout_s and isinstance(error, _kafka_exception()):
            raise TransactionTooSlow(
                batch=writing.batch, rows=sent.rows, seconds=seconds, timeout_s=timeout_s
            ) from error
        raise
    if kept is not None:
        kept.keep(writing, writer, timeout_s, producer)
    return sent.rows


def fence_writers(writing: Writing, *, known_writers: int) -> None:
    """What a new driver does before it writes anything: from here on no writer of an older run can commit."""
    driver = _producer(writing, None, writing.transaction_timeout_s)
    _patiently(driver.init_transactions, writing.attempt_seconds_max)
    driver.begin_transaction()
    _produce(driver, writing.batches_topic, *encode(Run(run=writing.run, query=writing.query)), partition=RUNS)
    _patiently(driver.commit_transaction, writing.attempt_seconds_max)
    for writer in range(known_writers):
        one = _producer(writing, writer, writing.transaction_timeout_s)
        _patiently(one.init_transactions, writing.attempt_seconds_max)


def end_attempts(writing: Writing, *, known_writers: int) -> None:
    """From here on nothing that was begun can commit, and what is recorded is all that is written.

    Raises LeftOver if another run drives the sink: then none of this is ours to decide.
    """
    for writer in range(known_writers):
        _require_driving(writing)
        one = _producer(writing, writer, writing.transaction_timeout_s)
        _patiently(one.init_transactions, writing.attempt_seconds_max)
    _require_driving(writing)


def begun_batch(writing: Writing, *, known_writers: int) -> Part | None:
    """A part of the batch that is written already: its rows belong to writers as they were divided then.

    Raises CheckpointMismatch if something later was written than the checkpoint knows of.
    """
    for writer in range(known_writers):
        part = _finished_last(writing, writer)
        if part is None or part.query != writing.query or part.batch < writing.batch:
            continue
        as_then = replace(writing, writers=part.writers, division=part.division).part(writer, rows=part.rows)
        if is_finished(part, as_then):
            return part
    return None


def _is_written(writing: Writing, writer: int) -> bool:
    _require_driving(writing)
    return is_finished(_finished_last(writing, writer), writing.part(writer, rows=0))


def _require_driving(writing: Writing) -> None:
    run = newest(writing.settings, writing.batches_topic, RUNS)
    if not isinstance(run, Run) or run.run != writing.run:
        raise LeftOver(f"Run {writing.run} no longer drives {writing.transactional_prefix}.")


def _finished_last(writing: Writing, writer: int) -> Part | None:
    found = newest(writing.settings, writing.batches_topic, partition_of(writer))
    return found if isinstance(found, Part) else None


def _producer(writing: Writing, writer: int | None, timeout_s: float) -> Producer:
    from confluent_kafka import Producer

    return Producer(
        {
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # keys go where Java's producer sends them
            "queue.buffering.max.messages": 200_000,
            **writing.settings,
            "transactional.id": writing.transactional_id(writer),
            "transaction.timeout.ms": int(min(timeout_s, writing.broker_timeout_max_s) * 1000),
            "enable.idempotence": True,
        }
    )


@dataclass(slots=True)
class _Sent:
    rows: int = 0


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException

    return KafkaException


def _send(producer: Producer, writing: Writing, rows: Iterable[Row], sent: _Sent) -> None:
    began = time.monotonic()
    for topic, key, value, headers, timestamp in rows:
        extra: dict[str, Any] = {}
        if headers:
            extra["headers"] = [(each["key"], each["value"]) for each in headers]
        if timestamp is not None:
            extra["timestamp"] = timestamp
        _produce(producer, topic, key, value, **extra)
        sent.rows += 1
        if sent.rows % POLL_EVERY_ROWS == 0:
            producer.poll(0)
        if writing.rate is not None:
            _keep_pace(producer, began=began, count=sent.rows, rate=writing.rate)


def _keep_pace(producer: Producer, *, began: float, count: int, rate: float) -> None:
    ahead = count / rate - (time.monotonic() - began)
    if ahead > 0.01:
        producer.poll(0)
        time.sleep(ahead)


def _produce(producer: Producer, topic: str, key: bytes | None, value: bytes | None, **extra: Any) -> None:
    while True:
        try:
            return producer.produce(topic, value, key, **extra)
        except BufferError:
            producer.poll(0.1)


def _patiently(call: Callable[[float], None], seconds_max: float) -> None:
    """What may be tried again is, until the time is up: a broker that restarts is back in seconds."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + seconds_max
    while True:
        try:
            return call(max(1.0, deadline - time.monotonic()))
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_PAUSE_S)


def _abandon(producer: Producer) -> None:
    """Best effort, so that readers need not wait for the time-out. What is left, the next attempt's start aborts."""
    from confluent_kafka import KafkaException

    try:
        producer.abort_transaction(5.0)
    except KafkaException:
        producer.purge()


def _not_empty(rows: Iterable[Row]) -> Iterator[Row] | None:
    iterator = iter(rows)
    for first in iterator:
        return _chain(first, iterator)
    return None


def _chain(first: Row, rest: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from rest
