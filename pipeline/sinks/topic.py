"""The exactly-once topic sink, driver's side: rows become records, and every record gets its writer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.checkpoint import Checkpoint, as_json, batches_note
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.registry.client import RegistrySettings
from tidemark.pipeline.repeatable import may_differ, survivors_may_move
from tidemark.pipeline.sinks.batches import BY_KEY, BY_POSITION, last_part
from tidemark.pipeline.sinks.transactional import (
    Row,
    Writing,
    begun_batch,
    end_attempts,
    fence_writers,
    kept_writers,
    write_part,
)
from tidemark.pipeline.sinks.written import require_record_of_begun
from tidemark.pipeline.spec import Pipeline, Sink, TopicSink, key_subject, value_subject
from tidemark.pipeline.worker_memory import leave_out_loaded_modules

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql import Column, DataFrame

BATCHES_CONFIG = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
QUERY_ID_SECONDS_MAX = 60
SOURCE_ORDER = ("_topic", "_partition", "_offset")


def batches_topic(*, pipeline: str, sink: str) -> str:
    return f"{pipeline}.{sink}.batches"


def make_topics(sinks: Iterable[Sink], cluster: ClusterAdmin, checkpoint: Checkpoint) -> Iterator[str]:
    """The topics that sinks write to, where they are missing. What to say: of one that was written to."""
    there = cluster.topics()
    for sink in sinks:
        if not isinstance(sink, TopicSink) or not sink.topic:
            continue
        if sink.topic not in there and checkpoint.last_batch(sink.name) is not None:
            gone = "was written to, is gone, and is made anew: what was in it is not written again"
            yield f"sinks.{sink.name}: the topic {sink.topic} {gone}."
        cluster.create_topic(sink.topic, partitions=sink.partitions)


def records(
    view: DataFrame, sink: TopicSink, *, registry: RegistrySettings | None = None, register: bool = True
) -> DataFrame:
    """A view as records: topic, key, value, headers, timestamp, and the order they go out in.

    `register`: whether schemas may be registered now; False where nothing will be written."""
    from pyspark.sql import functions as f

    def expression(text: str | None, otherwise: Column) -> Column:
        return otherwise if text is None else f.expr(text)

    visible = [f.col(f"`{name}`") for name in view.columns if not name.startswith("_")]
    if sink.value is None and not visible:
        raise CommandFailed(f"sinks.{sink.name}: the view {sink.view!r} has no columns to write.")
    value = expression(sink.value, f.struct(*visible) if sink.format else f.to_json(f.struct(*visible)))
    if sink.format is not None:
        value = _framed(view, value, sink, registry, subject=value_subject(sink), register=register)
    key = _key(view, sink, registry, register=register)
    topic = f.col(sink.topic_column) if sink.topic_column else f.lit(sink.topic)
    order = [f.col(name) for name in SOURCE_ORDER if name in view.columns]
    return view.select(
        topic.cast("string").alias("topic"),
        key.alias("key"),
        value.cast("binary").alias("value"),
        expression(sink.headers, f.lit(None)).cast("array<struct<key:string,value:binary>>").alias("headers"),
        f.unix_millis(expression(sink.timestamp, f.lit(None)).cast("timestamp")).alias("timestamp"),
        f.struct(*order).alias("source_order") if order else f.lit(None).cast("int").alias("source_order"),
    )


def _key(view: DataFrame, sink: TopicSink, registry: RegistrySettings | None, *, register: bool) -> Column:
    from pyspark.sql import functions as f

    if sink.key is None:
        return f.lit(None).cast("binary")
    key = f.expr(sink.key)
    if sink.key_format is not None:
        return _framed(view, key, sink, registry, subject=key_subject(sink), register=register, is_key=True)
    return key if _is_binary(view, sink.key) else key.cast("string").cast("binary")


def _framed(
    view: DataFrame,
    column: Column,
    sink: TopicSink,
    registry: RegistrySettings | None,
    *,
    subject: str,
    register: bool,
    is_key: bool = False,
) -> Column:
    from tidemark.pipeline.registry.encoding import Framing, framed

    assert registry is not None
    wanted = sink.key_format if is_key else sink.format
    assert wanted is not None
    framing = Framing(
        place=f"sinks.{sink.name}",
        format=wanted,
        subject=subject,
        schema=None if is_key else sink.schema,
        may_register=sink.auto_register,
    )
    kind = view.select(column.alias("one")).schema[0].dataType
    return framed(column, kind, framing, registry, register=register)


def _is_binary(view: DataFrame, expression: str | None) -> bool:
    return expression is not None and view.selectExpr(expression).schema[0].dataType.typeName() == "binary"


def division_of(view: DataFrame, sink: TopicSink, pipeline: Pipeline) -> str:
    """How rows are divided among writers. Raises CommandFailed where no way is the same when a batch is tried again."""
    if sink.writers == 1:
        return BY_KEY
    if survivors_may_move(view, sink):
        raise CommandFailed(
            f"sinks.{sink.name}: of records with one key 'dedupe' may keep another when a batch is tried again, and "
            "several writers could then each have one of them, or none; let the sink's 'key' be made of dedupe's keys "
            "alone (under their own names), or set 'writers: 1'.",
            code=ExitCode.USAGE,
        )
    if not may_differ(view, sink, pipeline):
        return BY_KEY
    missing = [name for name in SOURCE_ORDER if name not in view.columns]
    if missing:
        raise CommandFailed(
            f"sinks.{sink.name}: rows that are joined with a table, made by chance (as by uuid()) or by a step in "
            "Python may differ when a batch is tried again, so several writers share them by their source's "
            "partitions; select "
            f"{', '.join(missing)} in the view {sink.view!r} too, or set 'writers: 1'.",
            code=ExitCode.USAGE,
        )
    return BY_POSITION


class TopicBatches:
    """What foreachBatch calls, once per batch of one sink; owns the sink's run."""

    def __init__(
        self,
        sink: TopicSink,
        *,
        pipeline: str,
        cluster: ClusterAdmin,
        checkpoint: Checkpoint,
        division: str = BY_KEY,
        topic_ids: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._sink = sink
        self._pipeline = pipeline
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._division = division
        self._topic_ids = topic_ids
        self._timeout_max_s = cluster.transaction_timeout_max_s()
        self._topic = batches_topic(pipeline=pipeline, sink=sink.name)
        self._run = uuid.uuid4().hex
        self._known_writers = 0  # none until this run has taken over
        self._planned_before = checkpoint.last_planned(sink.name)
        self._previous: dict[int, int] = {}
        self.query_id: Future[str] = Future()
        self.rows_written = 0

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        writing = self._writing(batch_id)
        if not self._known_writers:
            self._take_over(writing)
            begun = begun_batch(writing, known_writers=self._known_writers)
            if begun is not None:  # an older run wrote a part of this batch: its rows are divided as it divided them
                writing = replace(writing, writers=begun.writers, division=begun.division)
        written = write_batch(batch, writing)
        self.rows_written += sum(written.values())
        self._previous |= {writer: batch_id for writer, rows in written.items() if rows}

    def last_written(self) -> int | None:
        """The newest batch that a part of was, or may have been, written; nobody writes any more of it after this was
        asked.

        Raises LeftOver if another run has taken over."""
        if not self._known_writers:  # this run never wrote; of what an older one has planned, that may have a part
            return self._planned_before
        query = self.query_id.result(QUERY_ID_SECONDS_MAX)
        end_attempts(self._writing(-1), known_writers=self._known_writers)
        part = last_part(self._cluster, self._topic, query=query)
        return None if part is None else part.batch

    def _take_over(self, writing: Writing) -> None:
        writers = self._sink.writers
        if self._planned_before is not None and writing.batch <= self._planned_before:
            require_record_of_begun(self._sink, self._topic, self._cluster, self._checkpoint)
        self._cluster.create_topic(self._topic, partitions=1 + writers, config=BATCHES_CONFIG)
        known = self._cluster.grow_topic(self._topic, partitions=1 + writers) - 1
        topic_id = self._cluster.topic_ids([self._topic]).get(self._topic, "")
        self._checkpoint.write_note(batches_note(self._sink.name), {"topic": self._topic, "id": topic_id})
        fence_writers(writing, known_writers=known)
        self._known_writers = known

    def _writing(self, batch_id: int) -> Writing:
        query = self.query_id.result(QUERY_ID_SECONDS_MAX)
        rate, writers = self._sink.rate, self._sink.writers
        return Writing(
            settings=self._cluster.settings,
            # Without the query's id: another checkpoint of the same pipeline fences this one, too.
            transactional_prefix=f"{self._pipeline}.{self._sink.name}",
            batches_topic=self._topic,
            run=self._run,
            query=query,
            batch=batch_id,
            writers=writers,
            transaction_timeout_s=self._sink.transaction_timeout_s,
            rate=None if rate is None else rate / writers,
            broker_timeout_max_s=self._timeout_max_s,
            division=self._division,
            ends=as_json(self._checkpoint.planned(self._sink.name, batch_id)),
            topic_ids=self._topic_ids(),
            previous=dict(self._previous),
        )


def write_batch(batch: DataFrame, writing: Writing) -> dict[int, int]:
    """Every record to its writer, every writer's part in one transaction; the rows written now, by writer."""
    from pyspark.sql import functions as f

    # Not by where Spark happens to hold a row: tried again, a row goes to the same writer, whatever the number of
    # tasks, executors or machines. By content, records of one key share a writer, and so keep their order; but content
    # may differ when a table is read again, so behind a table the partition decides that the source record is in.
    if writing.writers == 1:
        parts = batch.repartition(1)
    else:
        place = (
            f.xxhash64("source_order._topic", "source_order._partition")
            if writing.division == BY_POSITION
            else f.xxhash64("topic", f.coalesce("key", "value"))
        )
        parts = batch.repartitionById(writing.writers, f.pmod(place, f.lit(writing.writers)).cast("int"))
    if batch.schema["source_order"].dataType.typeName() == "struct":
        parts = parts.sortWithinPartitions("source_order")
    written = parts.drop("source_order").mapInArrow(part_writer(writing), "writer int, rows long").collect()
    return {row.writer: row.rows for row in written}


def part_writer(writing: Writing) -> Callable[[Iterable[RecordBatch]], Iterable[RecordBatch]]:
    def write(batches: Iterable[RecordBatch]) -> Iterable[RecordBatch]:
        import pyarrow
        from pyspark import TaskContext

        leave_out_loaded_modules()
        context = TaskContext.get()
        assert context is not None
        part, attempt = context.partitionId(), context.attemptNumber()
        rows = write_part(writing, part, _rows(batches), attempt=attempt, kept=kept_writers())
        yield pyarrow.RecordBatch.from_arrays(
            [pyarrow.array([part], "int32"), pyarrow.array([rows])], ["writer", "rows"]
        )

    return write


def _rows(batches: Iterable[Any]) -> Iterator[Row]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("topic", "key", "value", "headers", "timestamp")]
        yield from zip(*columns, strict=True)
