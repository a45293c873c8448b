"""From a declaration to Spark's plans: sources become views, steps views over views, and each sink takes one away."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.balance import ReadPlan
from tidemark.pipeline.formats import ReadAs
from tidemark.pipeline.inputs import BatchLimit, Input, lake_input, topic_input
from tidemark.pipeline.progress import RULES_PREFIX
from tidemark.pipeline.python_steps import Function, applied, function_of, ship
from tidemark.pipeline.spec import LakeSource, Pipeline, Sink, Step, TopicSink, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

DEAD_LETTER_PREFIX = "dead-letters-"
_HEADERS = """concat(coalesce(_headers, array()), array(
  named_struct('key', 'dead-letter-reason', 'value', cast(_reason AS BINARY)),
  named_struct('key', 'dead-letter-topic', 'value', cast(_topic AS BINARY)),
  named_struct('key', 'dead-letter-partition', 'value', cast(cast(_partition AS STRING) AS BINARY)),
  named_struct('key', 'dead-letter-offset', 'value', cast(cast(_offset AS STRING) AS BINARY))))"""


def dead_letter_sink(source: TopicSource) -> TopicSink:
    """Where a source's malformed records go, as they came, with the reason in their headers."""
    assert source.dead_letter_topic is not None
    return TopicSink(
        name=DEAD_LETTER_PREFIX + source.name,
        view=DEAD_LETTER_PREFIX + source.name,
        topic=source.dead_letter_topic,
        key="_key",
        value="_value",
        headers=_HEADERS,
    )


def all_sinks(pipeline: Pipeline) -> list[Sink]:
    """Those of the file, and one for each source with dead letters."""
    letters = [dead_letter_sink(each) for each in pipeline.topic_sources if each.has_dead_letters]
    return [*pipeline.sinks, *letters]


class Graph:
    """Builds the views of one pipeline: once to look at, and for each query with sources of its own."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        *,
        schemas: Mapping[str, str],
        plans: Mapping[str, ReadPlan] | None = None,
        given: Mapping[str, DataFrame] | None = None,
        lakes: Mapping[str, str] | None = None,
    ) -> None:
        """`given`: views that are there already, as of a batch; then no source is read. `lakes`: by source, where its
        older records are."""
        self._spark = spark
        self._pipeline = pipeline
        self._schemas = schemas
        self._plans = plans or {}
        self._given = given
        self._lakes = lakes or {}
        self._functions: dict[str, Function] = {}
        self._plans_of_views: dict[str, DataFrame] | None = None
        self.judged: dict[str, DataFrame] = {}  # of steps with rules, with the reason of those that break one

    def over(self, spark: SparkSession, given: Mapping[str, DataFrame]) -> Graph:
        """The same steps, over rows that are there already."""
        made = Graph(spark, self._pipeline, schemas=self._schemas, given=given)
        made._functions = self._functions
        return made

    def read_as(self, source: TopicSource) -> ReadAs:
        return ReadAs(
            schema=self._schemas.get(source.name),
            key_schema=self._schemas.get(source.key_schema_name),
            registry=self._pipeline.registry,
        )

    def records_of(self, source: TopicSource, *, limit: BatchLimit) -> DataFrame:
        """A source's records as a stream, parsed and counted, the malformed ones with their reason."""
        found = self._topic_input(source, {}, limit).counted
        assert found is not None
        return found

    def views(self, names: Collection[str]) -> dict[str, DataFrame]:
        """Several views of the same sources."""
        found = self._sources({}, BatchLimit())
        wanted = self._pipeline.views_behind(names)
        for step in self._pipeline.steps:
            if wanted & {step.name, step.rejected}:
                found |= self._step(step)
        return {name: found[name] for name in names}

    def plan_of(self, sink: Sink) -> DataFrame:
        """A sink's view to be looked at, not started: made once for all sinks, as Spark takes its time to analyse."""
        if self._plans_of_views is None:
            self._plans_of_views = self._made({each.view for each in all_sinks(self._pipeline)}, {}, BatchLimit())
        return self._plans_of_views[sink.view]

    def view_of(self, sink: Sink, *, limit: BatchLimit, source_options: Mapping[str, str] | None = None) -> DataFrame:
        """With sources of its own, for a query."""
        return self._made({sink.view}, source_options or {}, limit)[sink.view]

    def _made(
        self, wanted: Collection[str], source_options: Mapping[str, str], limit: BatchLimit
    ) -> dict[str, DataFrame]:
        views = self._sources(source_options, limit)
        for step in self._pipeline.steps:
            if all(name in views for name in wanted):
                break
            views |= self._step(step)
        return views

    def _sources(self, source_options: Mapping[str, str], limit: BatchLimit) -> dict[str, DataFrame]:
        if self._given is not None:
            for name, view in self._given.items():
                if not name.startswith(DEAD_LETTER_PREFIX):
                    view.createOrReplaceTempView(name)
            return dict(self._given)
        views = {}
        for source in self._pipeline.sources:
            if isinstance(source, LakeSource):
                made = lake_input(self._spark, source)
            else:
                made = self._topic_input(source, source_options, limit)
            made.good.createOrReplaceTempView(source.name)
            views[source.name] = made.good
            if isinstance(source, TopicSource) and source.table and source.has_dead_letters:
                # A table may be read more than once; its dead letters are of a stream, which is not.
                made = self._topic_input(replace(source, table=False), {}, limit)
            if made.all is not None:
                views[DEAD_LETTER_PREFIX + source.name] = made.all.where("_reason IS NOT NULL")
        return views

    def _topic_input(self, source: TopicSource, source_options: Mapping[str, str], limit: BatchLimit) -> Input:
        return topic_input(
            self._spark,
            source,
            pipeline=self._pipeline,
            read_as=self.read_as(source),
            plan=self._plans.get(source.name, ReadPlan()),
            extra=source_options,
            limit=limit,
            lake=self._lakes.get(source.name),
        )

    def _step(self, step: Step) -> dict[str, DataFrame]:
        from pyspark.errors import AnalysisException, ParseException

        try:
            rows = self._spark.sql(step.sql)
            if step.python is not None:
                rows = self._by_python(step, step.python, rows)
            if step.watermark is not None:
                rows = rows.withWatermark(step.watermark.column, step.watermark.delay)
            if step.dedupe is not None:
                rows = rows.dropDuplicatesWithinWatermark(list(step.dedupe.keys))
            made = {step.name: rows} if not step.rules else self._divided(rows, step)
        except (AnalysisException, ParseException) as error:
            why = str(error).strip().splitlines()[0].rstrip(".")
            raise CommandFailed(f"The step {step.name!r}: {why}.", code=ExitCode.USAGE) from None
        for name, view in made.items():
            view.createOrReplaceTempView(name)
        return made

    def _by_python(self, step: Step, named: str, rows: DataFrame) -> DataFrame:
        function = self.function(named, of=step.name)
        return applied(function, rows, step=step.name, beside=self._pipeline.file.absolute().parent)

    def function(self, named: str, *, of: str) -> Function:
        """One of the user's own, which the executors then have, too."""
        beside = self._pipeline.file.absolute().parent
        if named not in self._functions:
            self._functions[named] = function_of(named, step=of, beside=beside)
            ship(self._spark, named, beside=beside)
        return self._functions[named]

    def _divided(self, rows: DataFrame, step: Step) -> dict[str, DataFrame]:
        """Rows that keep all rules, and the others with those that they break. A condition that is null is broken."""
        from pyspark.sql import functions as f

        broken = [f.when(~f.coalesce(f.expr(rule), f.lit(False)), f.lit(name)) for name, rule in step.rules.items()]
        self.judged[step.name] = judged = rows.withColumn("_reason", f.concat_ws("; ", *broken))
        if self._given is None:  # counts travel with a stream's progress; those of a batch are the caller's to count
            judged = judged.observe(RULES_PREFIX + step.name, *rule_counts())
        return {
            step.name: judged.where("_reason = ''").drop("_reason"),
            step.rejected: judged.where("_reason <> ''"),
        }


def rule_counts() -> list[Column]:
    from pyspark.sql import functions as f

    return [f.count("*").alias("rows"), f.count(f.when(f.col("_reason") != "", 1)).alias("rejected")]
