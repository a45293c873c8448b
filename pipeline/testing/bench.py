"""Runs cases: a broker in this process for each, one Spark session for all of them, and the pipeline's own runner."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spec import FileSink, LakeSource, Pipeline, Sink, TopicSink, TopicSource
from tidemark.pipeline.testing.cases import Case, Given, is_record
from tidemark.pipeline.testing.comparing import differences
from tidemark.pipeline.testing.isolating import isolated, source_of, topics_to_make

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = {"transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
Rows = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one case."""

    name: str
    seconds: float
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by sink
    failure: str | None = None

    @property
    def passed(self) -> bool:
        return not self.problems and self.failure is None

    def text(self) -> str:
        lines = [f"{'ok  ' if self.passed else 'FAIL'}  {self.name}  ({self.seconds:.1f} s)"]
        if self.failure is not None:
            lines.append(f"      {self.failure}")
        for sink, problems in self.problems.items():
            lines.append(f"      {sink}:")
            lines += [f"        {each}" for each in problems]
        return "\n".join(lines)


class Bench:
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._count = 0

    def run_case(self, pipeline: Pipeline, case: Case) -> Outcome:
        began = time.monotonic()
        try:
            with self.trial(pipeline, sinks=case.sinks) as trial:
                problems, failure = self._judge(trial, case)
        except CommandFailed as refused:
            problems, failure = {}, str(refused)
        return Outcome(name=case.name, seconds=time.monotonic() - began, problems=problems, failure=failure)

    def _judge(self, trial: Trial, case: Case) -> tuple[dict[str, list[str]], str | None]:
        step: Case | None = case
        problems: dict[str, list[str]] = {}
        while step is not None:
            told = trial.run(step.given)
            if step.fails is not None or told is not None:
                return problems, _of_failure(step.fails, told)
            for sink, expected in step.expect.items():
                got = trial.rows(sink, like=expected)
                if found := differences(expected, got, ignore=step.ignore, ordered=step.ordered):
                    problems[sink if step is case else f"{sink} ({step.name})"] = found
            step = step.then
        return problems, None

    @contextmanager
    def trial(self, pipeline: Pipeline, *, sinks: set[str] | None) -> Iterator[Trial]:
        from tidemark._embedded import embedded

        self._count += 1
        catalog = f"case{self._count}_{id(self) % 10_000}"
        directory = Path(tempfile.mkdtemp(prefix="tidemark-case-"))
        for name, value in _catalog(catalog, directory).items():
            self._spark.conf.set(name, value)
        try:
            with embedded(**SMALL) as broker:  # type: ignore[arg-type]
                moved = isolated(
                    pipeline, bootstrap=broker.bootstrap, directory=directory, catalog=catalog, sinks=sinks or None
                )
                yield Trial(self._spark, moved)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


class Trial:
    """One pipeline on a broker of its own."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self._spark = spark
        self.pipeline = pipeline
        self._cluster = ClusterAdmin(pipeline.bootstrap, {})
        self.said = io.StringIO()
        for topic in topics_to_make(pipeline):
            self._cluster.create_topic(topic, partitions=1)

    def run(self, given: Mapping[str, Sequence[Given]]) -> str | None:
        """Produces, runs until everything is read; the pipeline's failure, if it failed."""
        tables = {each.name for each in self.pipeline.topic_sources if each.table}
        for name in sorted(given, key=lambda each: each not in tables):  # tables first: streams are joined with them
            source, place = source_of(self.pipeline, name)
            if isinstance(source, TopicSource):
                self.produce(place, given[name])
            else:
                self._write(source, given[name])
        try:
            Runner(self._spark, self.pipeline, once=True, out=self.said).run()
        except CommandFailed as failure:
            return str(failure)
        return None

    def produce(self, topic: str, records: Sequence[Given]) -> None:
        from confluent_kafka import Producer

        partitions = 1 + max((each.partition or 0 for each in records), default=0)
        self._cluster.create_topic(topic, partitions=partitions)
        self._cluster.grow_topic(topic, partitions=partitions)
        producer = Producer({**self._cluster.settings, "partitioner": "murmur2_random", "linger.ms": 0})
        for each in records:
            place = {"partition": each.partition} if each.partition is not None else {}
            time_of = {"timestamp": each.timestamp_ms} if each.timestamp_ms is not None else {}
            producer.produce(topic, each.value, each.key, headers=list(each.headers), **place, **time_of)  # type: ignore[arg-type]
        producer.flush(30)

    def _write(self, source: LakeSource, records: Sequence[Given]) -> None:
        lines = [(each.value or b"{}").decode() for each in records]
        rows = self._spark.read.json(self._spark.sparkContext.parallelize(lines, 1))
        rows.write.mode("append").format(source.kind).save(source.path)

    def rows(self, sink_name: str, *, like: Sequence[Any] = ()) -> Rows:
        """What a sink has written, in the form that the expectation has."""
        from tidemark.pipeline.graph import all_sinks

        sink: Sink = next(each for each in all_sinks(self.pipeline) if each.name == sink_name)
        if isinstance(sink, TopicSink):
            asked = {name for each in like if is_record(each) for name in each}
            return [_like(each, asked) for each in self._records(sink)]
        asked = {name for each in like if isinstance(each, dict) for name in each}
        return self._table(sink, asked)

    def _records(self, sink: TopicSink) -> list[dict[str, Any]]:
        from confluent_kafka import TopicPartition

        topics = self._cluster.topics()
        given = set(topics_to_make(self.pipeline))
        own = [
            name for name in topics if not name.startswith("__") and not name.endswith(".batches") and name not in given
        ]
        found = []
        reading = {"isolation.level": "read_committed", "enable.partition.eof": True}
        with self._cluster.consumer(**reading) as reader:
            for topic in [sink.topic] if not sink.topic_column else own:
                for partition in topics.get(topic, ()):
                    reader.assign([TopicPartition(topic, partition, 0)])
                    while (message := reader.poll(30)) is not None and not message.error():
                        found.append(_read(message))
        return found

    def _table(self, sink: FileSink, asked: set[str]) -> Rows:
        try:
            table = (
                self._spark.table(sink.path)
                if sink.kind == "iceberg"
                else self._spark.read.format(sink.kind).load(sink.path)
            )
        except Exception:  # no batch had a row: there is no table yet
            return []
        columns = [name for name in table.columns if not name.startswith("_") or name in asked]
        return [json.loads(line) for line in table.select(*(f"`{name}`" for name in columns)).toJSON().collect()]


def _catalog(name: str, directory: Path) -> dict[str, str]:
    catalog = f"spark.sql.catalog.{name}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(directory / "lake"),
    }


def _of_failure(wanted: str | None, told: str | None) -> str | None:
    if wanted is None:
        return f"the pipeline failed: {told}"
    if told is None:
        return f"the pipeline should have failed with {wanted!r}, but did not"
    return None if re.search(wanted, told) else f"the pipeline failed, but not with {wanted!r}: {told}"


def _read(message: Any) -> dict[str, Any]:
    headers = {name: readable(value) for name, value in message.headers() or ()}
    return {
        "key": readable(message.key()),
        "value": readable(message.value(), parse=True),
        "headers": headers,
        "timestamp": message.timestamp()[1],
        "partition": message.partition(),
        "topic": message.topic(),
    }


def _like(record: dict[str, Any], asked: set[str]) -> object:
    """Only what the case speaks of; its plain values mean a record's value."""
    return {name: record[name] for name in record if name in asked} if asked else record["value"]


def readable(content: bytes | None, *, parse: bool = False) -> object:
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
    if parse:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
