"""A running pipeline: one Spark query per sink, followed until it ends, and started again where that may help."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TextIO

from tidemark.failure import CommandFailed
from tidemark.pipeline import causes, loss, recreated, report
from tidemark.pipeline.backfill import ToTheEnd, list_lakes
from tidemark.pipeline.balance import ReadPlan, plan_reads
from tidemark.pipeline.checkpoint import Checkpoint
from tidemark.pipeline.cluster import ClusterAdmin, Partition
from tidemark.pipeline.compaction import recover_tables
from tidemark.pipeline.graph import DEAD_LETTER_PREFIX, Graph, all_sinks
from tidemark.pipeline.history import History
from tidemark.pipeline.inputs import BatchLimit, partitions_of, record_bytes, topics_of
from tidemark.pipeline.lag import LogEnds, records_behind
from tidemark.pipeline.maintenance import Schedule
from tidemark.pipeline.metrics import Metrics
from tidemark.pipeline.pinned_tables import tables_of
from tidemark.pipeline.places import places, require_unmoved
from tidemark.pipeline.positions import GroupPosition, older_than_group
from tidemark.pipeline.progress import Progress, ProgressKey, key_of, line, read_progress, unread
from tidemark.pipeline.recreated import TopicIds
from tidemark.pipeline.renamed import require_not_renamed
from tidemark.pipeline.repeatable import require_sure_division
from tidemark.pipeline.schemas import resolve_schemas
from tidemark.pipeline.shared_batches import SharedBatches
from tidemark.pipeline.sharing import Read, keep_reads, reads_of
from tidemark.pipeline.sinks import files, upsert
from tidemark.pipeline.sinks.batches import BatchesUnreadable
from tidemark.pipeline.sinks.row_order import require_same_order
from tidemark.pipeline.sinks.rows import rows_for
from tidemark.pipeline.sinks.table_batches import TableBatches
from tidemark.pipeline.sinks.topic import TopicBatches, batches_topic, division_of, make_topics
from tidemark.pipeline.sinks.transaction_time import measured, records_after_timeout, records_per_batch
from tidemark.pipeline.sinks.transactional import LeftOver
from tidemark.pipeline.sinks.written import last_batch_of_table, require_same_history
from tidemark.pipeline.spec import FileSink, Pipeline, Sink, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

BatchWriter = TopicBatches | TableBatches | upsert.Upserts
SHARED_RECORDS_MAX = 1_000_000
LOOK_EVERY_S = 0.5
DRAIN_LOOK_EVERY_S = 0.01
LOOK_FOR_LOSSES_EVERY_S = 5.0
RESTART_PAUSE_S = 2.0
REPORTS_MAX = 100
STATUS_NOTE = "status.json"
RATES_NOTE = "rates.json"


@dataclass(slots=True)
class _Running:
    read: Read
    query: StreamingQuery = None  # type: ignore[assignment]  # once it is started
    restarts: int = 0
    last_read: ProgressKey | None = None
    writers: dict[str, BatchWriter] = field(default_factory=dict)  # by sink, where batches are ours to write
    shared: SharedBatches | None = None
    records_max: int | None = None  # of a batch, after one was too large for a transaction


class Runner:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, *, once: bool, out: TextIO = sys.stderr) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._once = once
        self._out = out
        self._cluster = ClusterAdmin(pipeline.bootstrap, pipeline.kafka)
        self._checkpoint = Checkpoint(pipeline.checkpoint, spark)
        self._sinks = all_sinks(pipeline)
        self._position = GroupPosition(self._cluster, pipeline.group, [sink.name for sink in self._sinks])
        self._running: list[_Running] = []
        self._stopping = False
        self._hurrying = False
        self._ending = False
        self._losses = loss.LossWatch()
        self._looked_for_losses = 0.0
        self._topic_ids = TopicIds(self._checkpoint)
        self._streamed: list[Partition] = []  # what the sources read as streams, as of the last look
        self._ends = LogEnds(lambda: self._cluster.ends(self._streamed))
        self._rates: dict[str, float] = dict(self._checkpoint.read_note(RATES_NOTE))
        self._to_the_end: ToTheEnd | None = None  # with `once`, of sources that Spark does not read to it by itself
        self._upkeep = Schedule(pipeline, self._checkpoint, now=time.time())
        self.metrics = Metrics(pipeline.name)
        self.history = History()

    def run(self) -> None:
        """Until everything there is has been read (`once`), a signal, or a failure that trying again cannot mend."""
        began = time.time()
        self._prepare()
        port = self._pipeline.metrics_port
        server = None if port is None else self.metrics.serve(port, host=self._pipeline.metrics_host)
        try:
            graph = Graph(
                self._spark,
                self._pipeline,
                schemas=resolve_schemas(self._spark, self._pipeline, self._cluster, self._checkpoint),
                plans=self._read_plans(),
                lakes=list_lakes(self._spark, self._pipeline, self._checkpoint),
            )
            reads = reads_of(self._pipeline, self._sinks, graph, self._checkpoint)
            views = {sink.name: graph.plan_of(sink) for sink in self._pipeline.sinks}
            require_sure_division(views, self._pipeline, [each.names for each in reads])
            keep_reads(reads, self._checkpoint)
            for read in reads:
                running = _Running(read)
                self._start(graph, running)
                self._running.append(running)
            self._print_start(None if server is None else server.server_port)
            while not self._check_queries(graph):
                self._see_to_tables(graph)
                self._wait_for_an_end()
            self._see_to_tables(graph)
        finally:
            self._ending = True
            self._stop()
            if server is not None:
                server.shutdown()
                server.server_close()
            self._finish(seconds=time.time() - began)

    def stop_soon(self, *_: Any) -> None:
        """A signal's handler: batches at work are finished first. A second signal does not wait for them."""
        self._hurrying = self._stopping
        self._stopping = True

    def _prepare(self) -> None:
        """Everything that can be refused before Spark starts work, with a sentence."""
        for said in require_unmoved(self._pipeline, self._checkpoint):
            self._print(said)
        require_not_renamed(self._sinks, self._checkpoint)
        for sink in self._sinks:
            self._checkpoint.require_sound(sink.name)
        for said in make_topics(self._sinks, self._cluster, self._checkpoint):
            self._print(said)
        recover_tables(self._sinks)
        for sink in self._sinks:
            self._position.note(sink.name, self._checkpoint.positions(sink.name))
            told = require_same_history(
                self._spark,
                sink,
                batches_topic=batches_topic(pipeline=self._pipeline.name, sink=sink.name),
                cluster=self._cluster,
                checkpoint=self._checkpoint,
            )
            if told is not None:
                self._print(told)
        if told := older_than_group(self._checkpoint, [sink.name for sink in self._sinks], self._position):
            self._print(told)
        self._look_at_topics()
        self._report_losses(at_start=True)
        self._upkeep.keep()  # or a pipeline that is started every minute would never be due
        if self._once and self._backfilled:
            of_them = [each for source in self._backfilled for each in partitions_of(source, self._cluster)]
            self._to_the_end = ToTheEnd(self._cluster.ends(of_them))

    @property
    def _backfilled(self) -> list[TopicSource]:
        return [each for each in self._pipeline.topic_sources if each.backfill is not None]

    def _reads_backfilled(self, read: Read) -> bool:
        behind = self._pipeline.views_behind([sink.view.removeprefix(DEAD_LETTER_PREFIX) for sink in read.sinks])
        return any(source.name in behind for source in self._backfilled)

    def _look_at_topics(self) -> None:
        """Which partitions there are now, and whether a topic is still the one that was read."""
        sources = {each.name: partitions_of(each, self._cluster) for each in self._pipeline.topic_sources}
        streams = [each.name for each in self._pipeline.topic_sources if not each.table or each.has_dead_letters]
        self._streamed = sorted({each for name in streams for each in sources[name]})
        now = self._cluster.topic_ids({topic for topic, _ in self._streamed})
        anew = self._topic_ids.changed(now)
        for source in self._pipeline.topic_sources:
            of_source = [name for name in anew if name in {topic for topic, _ in sources[source.name]}]
            if of_source and not source.table:
                self._report_recreated(source, of_source)
        self._topic_ids.keep(now)

    def _report_recreated(self, source: TopicSource, topics: list[str]) -> None:
        told = f"sources.{source.name}: {recreated.sentence(topics, self._position.position())}."
        if source.on_data_loss == "fail":
            raise CommandFailed(
                f"{told} Start with an empty checkpoint to read the new ones from their beginning; or set "
                "'on_data_loss: continue' to go on at the old offsets."
            )
        self._print(f"{told} Going on, as configured.")

    def _read_plans(self) -> dict[str, ReadPlan]:
        plans = {}
        cores = self._spark.sparkContext.defaultParallelism
        at = self._position.position()
        for source in self._pipeline.topic_sources:
            ranges = self._cluster.ranges(partitions_of(source, self._cluster))
            backlog = {each: high - max(low, at.get(each, low)) for each, (low, high) in ranges.items()}
            plans[source.name] = plan_reads(backlog, cores=cores)
        return plans

    def _limit(self, read: Read, records_max: int | None) -> BatchLimit:
        """Batches of a topic sink are transactions, and those have a time-out; one that is shared is held in memory."""
        usual = [
            records_per_batch(
                rows_per_second=self._rates.get(sink.name), rate_max=sink.rate, timeout_s=sink.transaction_timeout_s
            )
            for sink in read.sinks
            if isinstance(sink, TopicSink)
        ]
        if read.source is not None or self._reads_backfilled(read):
            usual.append(SHARED_RECORDS_MAX)
        return BatchLimit(usual=min(usual, default=None), forced=records_max)

    def _start(self, graph: Graph, running: _Running) -> None:
        read = running.read
        if read.source is None:
            self._start_alone(graph, running, read.sinks[0])
        else:
            self._start_shared(graph, running, read.source)
        for writer in running.writers.values():
            writer.query_id.set_result(running.query.id)

    def _start_alone(self, graph: Graph, running: _Running, sink: Sink) -> None:
        options = {}
        # With `once` nobody comes back for what would wait for more: a batch is what there is.
        if isinstance(sink, FileSink) and sink.commit_every_s is not None and not self._once:
            options = files.commit_by_size_or_time(sink, record_bytes=record_bytes(self._pipeline, self._cluster))
        view = graph.view_of(sink, source_options=options, limit=self._limit(running.read, running.records_max))
        rows = rows_for(view, sink, self._pipeline)
        writer = self._stream(rows, running.read)
        writer = writer.outputMode("update" if isinstance(sink, FileSink) and sink.is_upsert else sink.mode)
        if isinstance(sink, FileSink) and sink.python is not None:
            running.query = writer.foreachBatch(graph.function(sink.python, of=sink.name)).start()
            return
        if isinstance(sink, FileSink) and not sink.is_upsert:
            running.query = files.start(self._spark, view, sink, writer)
            return
        running.writers = {sink.name: self._writer_of(sink, view)}
        running.query = writer.foreachBatch(running.writers[sink.name]).start()

    def _start_shared(self, graph: Graph, running: _Running, source: TopicSource) -> None:
        """Each sink's view is looked at as a stream first: what does not fit is told before anything is written."""
        rows = graph.records_of(source, limit=self._limit(running.read, running.records_max))
        running.writers = {sink.name: self._writer_of(sink, graph.plan_of(sink)) for sink in running.read.sinks}
        running.shared = SharedBatches(
            source,
            graph=graph,
            writers=[(sink, running.writers[sink.name]) for sink in running.read.sinks],
            form=lambda view, sink: rows_for(view, sink, self._pipeline),
            tables=tables_of(running.read, graph, self._pipeline, self._cluster, self._checkpoint, tell=self._print),
        )
        running.query = self._stream(rows, running.read).foreachBatch(running.shared).start()

    def _stream(self, rows: DataFrame, read: Read) -> DataStreamWriter:
        trigger: dict[str, Any] = {"availableNow": True}
        if not self._once:
            trigger = {"processingTime": f"{int(read.trigger_s * 1000)} milliseconds"}
        return (
            rows.writeStream.queryName(f"{self._pipeline.name}.{read.name}")
            .option("checkpointLocation", self._checkpoint.of_sink(read.name))
            .trigger(**trigger)
        )

    def _writer_of(self, sink: Sink, view: DataFrame) -> BatchWriter:
        """Writes batches of the sink's rows, each exactly once."""
        if isinstance(sink, TopicSink):
            return TopicBatches(
                sink,
                pipeline=self._pipeline.name,
                cluster=self._cluster,
                checkpoint=self._checkpoint,
                division=division_of(view, sink, self._pipeline),
                topic_ids=lambda: dict(self._topic_ids.known),
            )
        if sink.is_upsert:
            merge = upsert.merge_of(view, sink)
            upsert.create_table(self._spark, upsert.changes(view, sink), sink, merge)
            planned = self._checkpoint.last_planned(sink.name)
            require_same_order(self._spark, sink, merge, topic_ids=self._topic_ids_behind(sink), planned=planned)
            return upsert.Upserts(sink, merge)
        files.prepare(self._spark, view, sink)
        return TableBatches(sink)

    def _topic_ids_behind(self, sink: Sink) -> dict[str, str]:
        behind = self._pipeline.views_behind([sink.view])
        streams = [each for each in self._pipeline.topic_sources if each.name in behind and not each.table]
        topics = {topic for source in streams for topic in topics_of(source, self._cluster)}
        return {name: each for name, each in self._topic_ids.known.items() if name in topics}

    def _print_start(self, metrics_port: int | None) -> None:
        ui = self._spark.sparkContext.uiWebUrl
        self._print(f"{self._pipeline.name} runs: {', '.join(sink.name for sink in self._sinks)}")
        if ui:
            self._print(f"  Spark UI  {ui}")
        if metrics_port is not None:
            self._print(f"  metrics   http://{self._pipeline.metrics_host}:{metrics_port}/metrics")
        for name, place in places(self._pipeline).items():
            self._print(f"  {name.removeprefix('sinks.'):9} {place}")
        self._print(f"  lag       tidemark lag --group {self._pipeline.group} --bootstrap {self._pipeline.bootstrap}")

    def _wait_for_an_end(self) -> None:
        """Until it is time to look again, or a query that was at work has ended."""
        from pyspark.errors import StreamingQueryException

        active = next((each.query for each in self._running if each.query.isActive), None)
        with suppress(StreamingQueryException):  # told of with the next look
            if active is not None:
                active.awaitTermination(LOOK_EVERY_S)  # type: ignore[arg-type]  # fractions are taken, too

    def _check_queries(self, graph: Graph) -> bool:
        """Hear what is new; True when there is nothing left to wait for."""
        is_at_work = False
        for running in self._running:
            query, was_active = running.query, running.query.isActive  # first: it may fail between two questions
            self._read_progress(running)
            failure = query.exception()
            if failure is not None:
                self._restart(graph, running, causes.text_of(failure))
            elif self._to_the_end is not None and not was_active and not self._stopping:
                self._go_on_if_ahead(graph, running, self._to_the_end)
            is_at_work = is_at_work or was_active or running.query is not query
        self._position.commit()
        self._watch_topics()
        self._note_lag()
        return self._stopping or not is_at_work

    def _go_on_if_ahead(self, graph: Graph, running: _Running, to_the_end: ToTheEnd) -> None:
        self._read_progress(running)
        at = self._position.of_sink(running.read.sinks[0].name)
        if self._reads_backfilled(running.read) and to_the_end.is_ahead(running.read.name, at):
            self._start(graph, running)

    def _see_to_tables(self, graph: Graph) -> None:
        """A table that is due is seen to while its query stands still between two batches; others go on."""
        for sink in [] if self._stopping else self._upkeep.due(now=time.time()):
            of_it = [each for each in self._running if any(one.name == sink.name for one in each.read.sinks)]
            at_work = [each for each in of_it if each.query.isActive]
            self._drain(at_work)
            for running in at_work:
                running.query.stop()
                self._forget_begun(running)
            for said in self._upkeep.see_to(self._spark, sink, now=time.time()):
                self._print(said)
            for running in at_work:
                self._start(graph, running)

    def _note_lag(self) -> None:
        """Whether a batch ends or not: an alert on lag must fire when nothing moves, too."""
        self.metrics.lag = {sink.name: self._lag_of(sink) for sink in self._sinks}

    def _lag_of(self, sink: Sink) -> int:
        """Of the topics that the sink reads; before its first batch, those of all sources."""
        positions, ends = self._position.of_sink(sink.name), self._ends.now()
        topics = {topic for topic, _ in positions}
        return records_behind(positions, {each: end for each, end in ends.items() if not topics or each[0] in topics})

    def _read_progress(self, running: _Running) -> None:
        for content in unread(running.query, running.last_read):
            running.last_read = key_of(content)  # first: a batch that ends the run is told of once
            progress = read_progress(running.read.label, content, ends=self._ends.now())
            if running.shared is not None:
                progress = replace(progress, judged=running.shared.judged.pop(progress.batch, {}))
            self._note(running, progress)

    def _note(self, running: _Running, progress: Progress) -> None:
        for sink in running.read.sinks:
            self._position.note(sink.name, progress.positions)
        if not progress.is_whole and (gone := self._losses.passed(progress.starts, began=progress.at)):
            self.metrics.lost_records += sum(each.last - each.first + 1 for each in gone)
            self._print(f"{running.read.label}: {loss.sentence(gone)}. Going on, as configured.")
        if not progress.rows:
            return  # Spark reports now and then that nothing happened
        running.restarts = 0
        rate = measured(rows=progress.rows, seconds=progress.batch_seconds)
        for sink in running.read.sinks:
            self.metrics.note(replace(progress, sink=sink.name))
            self.history.note(replace(progress, sink=sink.name))
            if rate is not None:
                self._rates[sink.name] = rate
        self._print(line(progress))
        self._write_status()
        self._check_rules(progress)

    def _check_rules(self, progress: Progress) -> None:
        """May end the run, unless it ends already."""
        for step in self._pipeline.steps:
            judged = progress.judged.get(step.name)
            told = None if judged is None else step.thresholds.sentence(rows=judged.rows, rejected=judged.rejected)
            if told is None:
                continue
            sentence, stops = f"The step {step.name!r}, batch {progress.batch} of {progress.sink}: {told[0]}.", told[1]
            if stops and not self._ending:
                raise CommandFailed(f"{sentence} The batch is written; the next run goes on after it.")
            self._print(sentence)

    def _restart(self, graph: Graph, running: _Running, message: str) -> None:
        if causes.is_loss(message):
            self._report_losses(at_start=False)
        running.restarts += 1
        why = causes.sentence(message)
        if (slow := causes.too_slow(message)) is not None:
            self._plan_anew(running, slow)
        elif not causes.may_pass(message) or running.restarts > self._pipeline.restarts_max:
            raise CommandFailed(f"{self._pipeline.name}.{running.read.label} failed: {why}")
        self._print(f"{running.read.label}: {why} Starting again ({running.restarts}/{self._pipeline.restarts_max}).")
        time.sleep(RESTART_PAUSE_S * running.restarts)
        self.metrics.restarts += 1
        list_lakes(self._spark, self._pipeline, self._checkpoint)  # a file that is gone may be why
        self._start(graph, running)

    def _plan_anew(self, running: _Running, slow: causes.TooSlow) -> None:
        """A way out for a batch that no transaction is long enough for: fewer records, if none of them is written."""
        name, limit_s = f"{self._pipeline.name}.{running.read.label}", self._cluster.transaction_timeout_max_s()
        try:
            last = self._written_last(running)
        except LeftOver:
            raise CommandFailed(f"{name} failed: another run of this pipeline has taken over its sinks.") from None
        except (BatchesUnreadable, _kafka_exception()):
            return  # the broker is away: the same batch is tried again first
        written = last is not None and last >= slow.batch
        if written or running.restarts > self._pipeline.restarts_max or not self._checkpoint.is_local:
            raise CommandFailed(
                f"{name} failed: batch {slow.batch} takes longer than a transaction may, at the broker's maximum of "
                f"{limit_s:.0f} s. Raise the broker's transaction.max.timeout.ms, and set 'batch_records_max' for "
                "batches to come."
            )
        running.records_max = records_after_timeout(rows=slow.rows, seconds=slow.seconds, broker_max_s=limit_s)
        self._checkpoint.forget_planned(running.read.name)
        self._print(
            f"{running.read.label}: batch {slow.batch} is planned anew, with {running.records_max:,} records at most."
        )

    def _report_losses(self, *, at_start: bool) -> None:
        """What retention took before we came. Spark only knows that something is missing; we say what."""
        failing = {source.name: source.on_data_loss == "fail" for source in self._pipeline.topic_sources}
        for source in self._pipeline.topic_sources:
            if source.backfill is not None:
                continue  # what the topic has no longer, the lake may have: its reader tells
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

    def _watch_topics(self) -> None:
        """What Spark passes over in silence: topics made anew and, where losses are gone past, where logs start now."""
        if time.time() - self._looked_for_losses < LOOK_FOR_LOSSES_EVERY_S:
            return
        self._looked_for_losses = now = time.time()
        try:
            self._look_at_topics()
        except CommandFailed:
            if self._topic_ids.changed(self._cluster.topic_ids(self._topic_ids.known)):
                raise
        lenient = [
            each for each in self._pipeline.topic_sources if each.on_data_loss == "continue" and not each.backfill
        ]
        if not lenient:
            return
        with suppress(CommandFailed):  # a broker that is away is Spark's to wait for
            partitions = [each for source in lenient for each in partitions_of(source, self._cluster)]
            self._losses.see(self._cluster.ranges(partitions), at=now)

    def _stop(self) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import StreamingQueryException

        if self._stopping:
            with suppress(StreamingQueryException, Py4JError, OSError):
                self._print_draining()
                self._drain(self._running)
        for running in self._running:
            # One that does not end in time, or whose JVM is gone: its batch is finished by the next run.
            with suppress(StreamingQueryException, Py4JError, OSError):
                running.query.stop()
                self._read_progress(running)
                if self._stopping:
                    self._forget_begun(running)
        self._position.commit()
        self._position.close()

    def _print_draining(self) -> None:
        if named := ", ".join(each.read.label for each in self._running if each.query.isActive):
            self._print(f"Stopping: {named} finish their batches (at most {self._pipeline.drain_s:.0f} s).")

    def _drain(self, queries: list[_Running]) -> None:
        """Each query is stopped when it is between two batches, or has just finished one."""
        deadline = time.monotonic() + self._pipeline.drain_s
        at_work = {running.read.name: running for running in queries if running.query.isActive}
        done = {name: self._checkpoint.last_batch(name) for name in at_work}
        while at_work and not self._hurrying and time.monotonic() < deadline:
            for name, running in list(at_work.items()):
                is_busy = running.query.isActive and running.query.status["isTriggerActive"]
                if not is_busy or self._checkpoint.last_batch(name) != done[name]:
                    running.query.stop()
                    del at_work[name]
            time.sleep(DRAIN_LOOK_EVERY_S)

    def _forget_begun(self, running: _Running) -> None:
        """A batch that Spark has planned, and nobody has written anything of, is left out of the checkpoint again: the
        next run starts without having to finish it, which Spark's connector reports a failure after."""
        name = running.read.name
        planned = self._checkpoint.last_planned(name)
        if planned is None or planned == self._checkpoint.last_batch(name) or self._checkpoint.has_state(name):
            return
        if any(isinstance(each, FileSink) and each.python is not None for each in running.read.sinks):
            return  # what the user's function did with it, it alone knows: under this number it gets the same rows
        try:
            written = self._written_last(running)
        except (CommandFailed, _kafka_exception(), BatchesUnreadable, LeftOver):
            return  # not known: the next run finishes it
        if written is None or written < planned:
            self._checkpoint.forget_planned(name)

    def _written_last(self, running: _Running) -> int | None:
        """The newest batch that any of the sinks has something of."""
        found = []
        for sink in running.read.sinks:
            writer = running.writers.get(sink.name)
            if isinstance(writer, TopicBatches):
                found.append(writer.last_written())
            elif isinstance(sink, FileSink):
                query = self._checkpoint.query_id(sink.name)
                found.append(last_batch_of_table(self._spark, sink, query=query))
        return max((each for each in found if each is not None), default=None)

    def _finish(self, *, seconds: float) -> None:
        if not self._running:
            return
        malformed = max((sum(self._malformed_by_sink(sink.name)) for sink in self._sinks), default=0)
        with suppress(CommandFailed):
            self._note_lag()
        text = report.summary(
            self._pipeline.name,
            self.history,
            seconds=seconds,
            malformed=malformed,
            lag=self.metrics.lag,
            restarts=self.metrics.restarts,
        )
        self._print(text)
        self._write_status(running=False)
        if self._checkpoint.is_local:
            reports = self._checkpoint.path / "reports"
            reports.mkdir(parents=True, exist_ok=True)
            page = reports / f"{time.strftime('%Y-%m-%d-%H%M%S')}.html"
            page.write_text(report.page(self._pipeline.name, self.history, summary_text=text), encoding="utf-8")
            for old in sorted(reports.glob("*.html"))[:-REPORTS_MAX]:
                old.unlink()
            self._print(f"  report: {page}")

    def _malformed_by_sink(self, sink: str) -> list[int]:
        return [count for labels, count in self.metrics.malformed.items() if f'sink="{sink}"' in labels]

    def _write_status(self, *, running: bool = True) -> None:
        """For `status`, which looks at checkpoints of its own machine only: elsewhere a batch need not wait for it."""
        if not self._checkpoint.is_local:
            return
        sinks = {
            name: {
                "batch": each.batch,
                "at": each.at,
                "rows_per_second": each.rows_per_second,
                "lag": each.lag,
                "batch_seconds": each.batch_seconds,
                "state_rows": each.state_rows,
            }
            for name, each in self.history.newest.items()
        }
        self._checkpoint.write_note(RATES_NOTE, self._rates)
        self._checkpoint.write_note(STATUS_NOTE, {"pid": os.getpid() if running else None, "sinks": sinks})

    def _print(self, text: str) -> None:
        print(text, file=self._out, flush=True)


def _kafka_exception() -> type[Exception]:
    from confluent_kafka import KafkaException

    return KafkaException


def stop_on_signals(runner: Runner) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, runner.stop_soon)
