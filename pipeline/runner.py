"""A running pipeline: one Spark query per sink, followed until it ends, and started again where that may help."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

from tidemark.failure import CommandFailed
from tidemark.pipeline import causes, loss, report
from tidemark.pipeline.balance import ReadPlan, plan_reads
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import Cluster
from tidemark.pipeline.graph import Graph, all_sinks
from tidemark.pipeline.inputs import partitions_of, record_bytes
from tidemark.pipeline.metrics import Metrics
from tidemark.pipeline.positions import GroupPosition
from tidemark.pipeline.progress import Progress, line, read_progress
from tidemark.pipeline.schemas import resolve_schemas
from tidemark.pipeline.sinks import files
from tidemark.pipeline.sinks.topic import TopicBatches, records
from tidemark.pipeline.spec import FileSink, Pipeline, Sink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 0.5
LOOK_FOR_LOSSES_EVERY_S = 5.0
RESTART_PAUSE_S = 2.0
HISTORY_MAX = 20_000
STATUS_NOTE = "status.json"


@dataclass(slots=True)
class _Running:
    sink: Sink
    query: StreamingQuery
    restarts: int = 0
    seen: set[tuple[str, int, str]] = field(default_factory=set)


class Runner:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, once: bool, out: TextIO = sys.stderr) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._once = once
        self._out = out
        self._cluster = Cluster(pipeline.bootstrap, pipeline.kafka)
        self._checkpoint = Checkpoint(pipeline.checkpoint)
        self._sinks = all_sinks(pipeline)
        self._position = GroupPosition(self._cluster, pipeline.group, [sink.name for sink in self._sinks])
        self._running: list[_Running] = []
        self._stopping = False
        self._losses = loss.LossWatch()
        self._looked_for_losses = 0.0
        self.metrics = Metrics(pipeline.name)
        self.history: list[Progress] = []

    def run(self) -> None:
        """Until everything there is has been read (`once`), a signal, or a failure that trying again cannot mend."""
        began = time.time()
        self._prepare()
        server = None if self._pipeline.metrics_port is None else self.metrics.serve(self._pipeline.metrics_port)
        try:
            graph = Graph(
                self._spark,
                self._pipeline,
                schemas=resolve_schemas(self._spark, self._pipeline, self._cluster, self._checkpoint),
                plans=self._read_plans(),
            )
            for sink in self._sinks:
                self._running.append(_Running(sink, self._start(graph, sink)))
            self._print_start(None if server is None else server.server_port)
            while not self._check_queries(graph):
                time.sleep(LOOK_EVERY_S)
        finally:
            self._stop()
            if server is not None:
                server.shutdown()
                server.server_close()
            self._finish(seconds=time.time() - began)

    def stop_soon(self, *_: Any) -> None:
        """A signal's handler: the batches at work are left to the next run, which finishes them."""
        self._stopping = True

    def _prepare(self) -> None:
        """Everything that can be refused before Spark starts work, with a sentence."""
        for sink in self._sinks:
            self._checkpoint.require_sound(sink.name)
            if isinstance(sink, TopicSink) and sink.topic:
                self._cluster.create_topic(sink.topic, partitions=sink.partitions)
        for sink in self._sinks:
            self._position.note(sink.name, self._checkpoint.positions(sink.name))
        self._report_losses(at_start=True)

    def _read_plans(self) -> dict[str, ReadPlan]:
        plans = {}
        cores = self._spark.sparkContext.defaultParallelism
        at = self._position.position()
        for source in self._pipeline.topic_sources:
            ranges = self._cluster.ranges(partitions_of(source, self._cluster))
            backlog = {each: high - max(low, at.get(each, low)) for each, (low, high) in ranges.items()}
            plans[source.name] = plan_reads(backlog, cores=cores)
        return plans

    def _start(self, graph: Graph, sink: Sink) -> StreamingQuery:
        options = {}
        if isinstance(sink, FileSink) and sink.commit_every_s is not None:
            options = files.commit_by_size_or_time(sink, record_bytes=record_bytes(self._pipeline, self._cluster))
        view = graph.view_of(sink, source_options=options)
        trigger: dict[str, Any] = {"availableNow": True}
        if not self._once:
            trigger = {"processingTime": f"{int(sink.trigger_s * 1000)} milliseconds"}
        rows = records(view, sink) if isinstance(sink, TopicSink) else files.gathered(view, sink)
        writer = (
            rows.writeStream.queryName(f"{self._pipeline.name}.{sink.name}")
            .option("checkpointLocation", self._checkpoint.of_sink(sink.name))
            .outputMode(sink.mode)
            .trigger(**trigger)
        )
        if isinstance(sink, FileSink):
            return files.start(self._spark, view, sink, writer)
        batches = TopicBatches(sink, pipeline=self._pipeline.name, cluster=self._cluster)
        query = writer.foreachBatch(batches).start()
        batches.query_id.set_result(query.id)
        return query

    def _print_start(self, metrics_port: int | None) -> None:
        ui = self._spark.sparkContext.uiWebUrl
        self._print(f"{self._pipeline.name} runs: {', '.join(sink.name for sink in self._sinks)}")
        if ui:
            self._print(f"  Spark UI  {ui}")
        if metrics_port is not None:
            self._print(f"  metrics   http://127.0.0.1:{metrics_port}/metrics")
        self._print(f"  lag       tidemark lag --group {self._pipeline.group} --bootstrap {self._pipeline.bootstrap}")

    def _check_queries(self, graph: Graph) -> bool:
        """Hear what is new; True when there is nothing left to wait for."""
        for running in self._running:
            self._read_progress(running)
            failure = running.query.exception()
            if failure is not None:
                self._restart(graph, running, causes.text_of(failure))
        self._position.commit()
        self._watch_losses()
        return self._stopping or not any(running.query.isActive for running in self._running)

    def _read_progress(self, running: _Running) -> None:
        for reported in running.query.recentProgress:
            content = json.loads(reported.json) if hasattr(reported, "json") else dict(reported)
            key = (content["runId"], content["batchId"], content["timestamp"])
            if key in running.seen:
                continue
            running.seen.add(key)
            self._note(running, read_progress(running.sink.name, content))

    def _note(self, running: _Running, progress: Progress) -> None:
        self._position.note(running.sink.name, progress.positions)
        if not progress.is_whole and (gone := self._losses.passed(progress.starts, began=progress.at)):
            self.metrics.lost_records += sum(each.last - each.first + 1 for each in gone)
            self._print(f"{running.sink.name}: {loss.sentence(gone)}. Going on, as configured.")
        if not progress.rows:
            return  # Spark reports now and then that nothing happened
        running.restarts = 0
        self.metrics.note(progress)
        if len(self.history) < HISTORY_MAX:
            self.history.append(progress)
        self._print(line(progress))
        self._write_status()

    def _restart(self, graph: Graph, running: _Running, message: str) -> None:
        if causes.is_loss(message):
            self._report_losses(at_start=False)
        running.restarts += 1
        why = causes.sentence(message)
        if not causes.may_pass(message) or running.restarts > self._pipeline.restarts_max:
            raise CommandFailed(f"{self._pipeline.name}.{running.sink.name} failed: {why}")
        self._print(f"{running.sink.name}: {why} Starting again ({running.restarts}/{self._pipeline.restarts_max}).")
        time.sleep(RESTART_PAUSE_S * running.restarts)
        self.metrics.restarts += 1
        running.query = self._start(graph, running.sink)

    def _report_losses(self, *, at_start: bool) -> None:
        """What retention took before we came. Spark only knows that something is missing; we say what."""
        failing = {source.name: source.on_data_loss == "fail" for source in self._pipeline.topic_sources}
        for source in self._pipeline.topic_sources:
            reading = set(partitions_of(source, self._cluster))
            at = {each: offset for each, offset in self._position.position().items() if each in reading}
            found = loss.lost(at, self._cluster.ranges(at))
            if not found:
                continue
            self.metrics.lost_records += sum(each.last - each.first + 1 for each in found)
            if failing[source.name]:
                gone = f"sources.{source.name}: {loss.sentence(found)}"
                raise CommandFailed(f"{gone}. Set 'on_data_loss: continue' to go on without them.")
            if at_start:
                self._losses.report(found)
                self._print(f"sources.{source.name}: {loss.sentence(found)}. Going on, as configured.")

    def _watch_losses(self) -> None:
        """Where the logs start now, for those sources whose losses Spark passes over in silence."""
        lenient = [each for each in self._pipeline.topic_sources if each.on_data_loss == "continue"]
        if not lenient or time.time() - self._looked_for_losses < LOOK_FOR_LOSSES_EVERY_S:
            return
        self._looked_for_losses = now = time.time()
        with suppress(CommandFailed):  # a broker that is away is Spark's to wait for
            partitions = [each for source in lenient for each in partitions_of(source, self._cluster)]
            self._losses.see(self._cluster.ranges(partitions), at=now)

    def _stop(self) -> None:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import StreamingQueryException

        for running in self._running:
            # One that does not end in time, or whose JVM is gone: its batch is finished by the next run.
            with suppress(StreamingQueryException, Py4JError, OSError):
                running.query.stop()
                self._read_progress(running)
        self._position.commit()
        self._position.close()

    def _finish(self, *, seconds: float) -> None:
        if not self._running:
            return
        malformed = max((sum(self._malformed_by_sink(sink.name)) for sink in self._sinks), default=0)
        text = report.summary(self._pipeline.name, self.history, seconds=seconds, malformed=malformed)
        self._print(text)
        self._write_status(running=False)
        if self._checkpoint.is_local:
            self._checkpoint.path.mkdir(parents=True, exist_ok=True)
            page = self._checkpoint.path / "report.html"
            page.write_text(report.page(self._pipeline.name, self.history, summary_text=text), encoding="utf-8")
            self._print(f"  report: {page}")

    def _malformed_by_sink(self, sink: str) -> list[int]:
        return [count for labels, count in self.metrics.malformed.items() if f'sink="{sink}"' in labels]

    def _write_status(self, *, running: bool = True) -> None:
        newest = {progress.sink: progress for progress in self.history[-200:]}
        sinks = {
            name: {
                "batch": each.batch,
                "at": each.at,
                "rows_per_second": each.rows_per_second,
                "lag": each.lag,
                "batch_seconds": each.batch_seconds,
                "state_rows": each.state_rows,
            }
            for name, each in newest.items()
        }
        self._checkpoint.write_note(STATUS_NOTE, {"pid": os.getpid() if running else None, "sinks": sinks})

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def stop_on_signals(runner: Runner) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop_soon)
