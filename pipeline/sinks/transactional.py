"""One writer's part of one batch as one Kafka transaction, in a Python worker of Spark.

What must hold, whatever is killed, retried, speculated or forgotten: of each part of each batch, exactly one
transaction commits. The order of the steps is the proof:

1. A new driver first commits a Run record, and then fences every writer's transactional id (`fence_writers`).
2. A writer first initialises its transactional id, which ends every earlier attempt of the same part: it was committed
   before, or it never will be. Only then it reads which run drives the sink now and which batch was finished last.
3. If another run drives, the writer is a left-over and stops. One that initialised before the fencing of 1 cannot
   commit; one that does later sees the Run record.
4. If the batch is recorded as finished, the part was written, and there is nothing to do.
5. Rows and the record of the batch are committed in one transaction. A writer that was fenced meanwhile fails here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.pipeline.sinks.batches import RUNS, Part, Run, encode, newest, partition_of

if TYPE_CHECKING:
    from confluent_kafka import Producer

POLL_EVERY_ROWS = 1000
RETRY_PAUSE_S = 0.2
Row = tuple[str, bytes | None, bytes | None, list[dict[str, Any]] | None, int | None]


class LeftOver(Exception):
    """Another run of the pipeline drives this sink; this writer belongs to one that is over."""


class PartsDisagree(Exception):
    """A part of this batch was written by a different number of writers: the driver must use that number."""


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

    def transactional_id(self, writer: int | None) -> str:
        return f"{self.transactional_prefix}.{'driver' if writer is None else writer}"


def write_part(writing: Writing, writer: int, rows: Iterable[Row]) -> int:
    """Writes the rows, unless they are written; the number of rows written now."""
    there = _not_empty(rows)
    if there is None:
        return 0  # an empty part needs no record: it is as empty when the batch is tried again
    producer = _producer(writing, writer)
    _patiently(producer.init_transactions, writing.attempt_seconds_max)
    if _is_written(writing, writer):
        return 0
    producer.begin_transaction()
    try:
        count = _send(producer, writing, there)
        part = Part(
            run=writing.run,
            query=writing.query,
            batch=writing.batch,
            writer=writer,
            writers=writing.writers,
            rows=count,
        )
        _produce(producer, writing.batches_topic, *encode(part), partition=partition_of(writer))
        _patiently(producer.commit_transaction, writing.attempt_seconds_max)
    except BaseException:
        _abandon(producer)
        raise
    return count


def fence_writers(writing: Writing, *, known_writers: int) -> None:
    """What a new driver does before it writes anything: from here on no writer of an older run can commit."""
    driver = _producer(writing, None)
    _patiently(driver.init_transactions, writing.attempt_seconds_max)
    driver.begin_transaction()
    _produce(driver, writing.batches_topic, *encode(Run(run=writing.run, query=writing.query)), partition=RUNS)
    _patiently(driver.commit_transaction, writing.attempt_seconds_max)
    for writer in range(known_writers):
        _patiently(_producer(writing, writer).init_transactions, writing.attempt_seconds_max)


def writers_of_begun_batch(writing: Writing, *, known_writers: int) -> int | None:
    """How many writers share the batch, if a part of it is written: rows belong to writers by that number."""
    for writer in range(known_writers):
        part = newest(writing.settings, writing.batches_topic, partition_of(writer))
        if isinstance(part, Part) and part.query == writing.query and part.batch == writing.batch:
            return part.writers
    return None


def _is_written(writing: Writing, writer: int) -> bool:
    run = newest(writing.settings, writing.batches_topic, RUNS)
    if not isinstance(run, Run) or run.run != writing.run:
        raise LeftOver(f"Run {writing.run} no longer drives {writing.transactional_prefix}.")
    part = newest(writing.settings, writing.batches_topic, partition_of(writer))
    if not isinstance(part, Part) or part.query != writing.query or part.batch < writing.batch:
        return False
    if part.batch == writing.batch and part.writers != writing.writers:
        raise PartsDisagree(f"Batch {writing.batch} was begun by {part.writers} writers, not {writing.writers}.")
    return True


def _producer(writing: Writing, writer: int | None) -> Producer:
    from confluent_kafka import Producer

    return Producer(
        {
            "linger.ms": 20,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # keys go where Java's producer sends them
            "queue.buffering.max.messages": 200_000,
            **writing.settings,
            "transactional.id": writing.transactional_id(writer),
            "transaction.timeout.ms": int(writing.transaction_timeout_s * 1000),
            "enable.idempotence": True,
        }
    )


def _send(producer: Producer, writing: Writing, rows: Iterable[Row]) -> int:
    began = time.monotonic()
    count = 0
    for topic, key, value, headers, timestamp in rows:
        extra: dict[str, Any] = {}
        if headers:
            extra["headers"] = [(each["key"], each["value"]) for each in headers]
        if timestamp is not None:
            extra["timestamp"] = timestamp
        _produce(producer, topic, key, value, **extra)
        count += 1
        if count % POLL_EVERY_ROWS == 0:
            producer.poll(0)
        if writing.rate is not None:
            _keep_pace(producer, began=began, count=count, rate=writing.rate)
    return count


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
