"""Sources as streams of rows, by Spark's Kafka connector or its file sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.balance import ReadPlan
from tidemark.pipeline.cluster import ClusterAdmin, Partition, java_settings
from tidemark.pipeline.compaction import read_all_columns
from tidemark.pipeline.formats import PARSED, UNKNOWN, ReadAs, decoded, good_rows, with_metadata
from tidemark.pipeline.spec import LakeSource, Pipeline, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SAMPLE_RECORDS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimit:
    """The most records of one batch: what holds where the file says nothing, and what holds whatever it says."""

    usual: int | None = None
    forced: int | None = None

    def applied(self, options: Mapping[str, str]) -> dict[str, str]:
        said = options.get("maxOffsetsPerTrigger")
        most = said if said is not None else self.usual
        if self.forced is not None:
            most = self.forced if most is None else min(int(most), self.forced)
        return {**options, "maxOffsetsPerTrigger": str(most)} if most is not None else dict(options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One source: the rows that steps see, and all rows with the reason of the malformed, uncounted and counted."""

    good: DataFrame
    all: DataFrame | None = None
    counted: DataFrame | None = None


def topics_of(source: TopicSource, cluster: ClusterAdmin) -> list[str]:
    """The topics that a source reads now. One that is named must be there."""
    if source.pattern is not None:
        found = cluster.matching(source.pattern)
        if not found:
            message = f"sources.{source.name}: no topic matches the pattern {source.pattern!r}."
            raise CommandFailed(message, code=ExitCode.NOT_FOUND)
        return found
    there = cluster.topics()
    for topic in source.topics:
        if topic not in there:
            message = f"sources.{source.name}: there is no topic {topic!r} at {cluster.bootstrap}."
            raise CommandFailed(message, code=ExitCode.NOT_FOUND)
    return list(source.topics)


def partitions_of(source: TopicSource, cluster: ClusterAdmin) -> list[Partition]:
    there = cluster.topics()
    return [(topic, index) for topic in topics_of(source, cluster) for index in there[topic]]


def topic_input(
    spark: SparkSession,
    source: TopicSource,
    *,
    pipeline: Pipeline,
    read_as: ReadAs,
    plan: ReadPlan,
    extra: Mapping[str, str],
    limit: BatchLimit,
    lake: str | None = None,
) -> Input:
    options = enough_is_no_more_than_most(
        limit.applied({**_options(source, pipeline), **plan.options(), **extra, **_connector_options(source)})
    )
    if source.table:
        table = with_metadata(spark.read.format("kafka").options(**_of_table(options)).load())
        every = decoded(table, source, read_as)
        if source.on_malformed == "fail":
            every = failing(every)
        return Input(good=newest_of_each_key(good_rows(every, source)))
    rows = with_metadata(_stream(spark, source, options, lake=lake))
    if source.end_time_ms is not None:
        rows = rows.where(f"_timestamp < timestamp_millis({source.end_time_ms})")
    every = decoded(rows, source, read_as)
    counted = _counted(every, source)
    return Input(good=good_rows(counted, source), all=every, counted=counted)


def _stream(spark: SparkSession, source: TopicSource, options: Mapping[str, str], *, lake: str | None) -> DataFrame:
    """By Spark's connector; from a topic's past by our own reader, whose offsets and columns are the same."""
    if source.backfill is None:
        return spark.readStream.format("kafka").options(**options).load()
    from tidemark.pipeline.source import register

    register(spark)
    place = {} if lake is None else {"tidemark.lake": lake}
    return spark.readStream.format("tidemark").options(**options, **place).load()


def lake_input(spark: SparkSession, source: LakeSource) -> Input:
    if source.kind == "iceberg":
        rows = spark.readStream.format("iceberg").options(**source.options).load(source.path)
        return Input(good=rows)
    reader = spark.readStream.format(source.kind).option("maxFilesPerTrigger", str(source.files_per_batch))
    if source.kind == "parquet":
        reader = reader.schema(read_all_columns(spark, source.path).schema)
    return Input(good=reader.options(**source.options).load(source.path))


def infer_schema(spark: SparkSession, source: TopicSource, cluster: ClusterAdmin) -> str:
    """The columns of the newest records, as DDL."""
    sample = _sample(cluster, partitions_of(source, cluster))
    if not sample:
        raise CommandFailed(
            f"sources.{source.name}: no schema is given, and there are no records yet to infer one from; add 'schema'."
        )
    lines = spark.sparkContext.parallelize(sample, 1)
    if source.format == "csv":
        found = spark.read.options(inferSchema="true", **source.options).csv(lines).schema  # type: ignore[arg-type]
    else:
        found = spark.read.options(**source.options).json(lines).schema
    columns = [field for field in found.fields if field.name != "_corrupt_record"]
    if not columns:
        raise CommandFailed(f"sources.{source.name}: none of {len(sample)} records is {source.format}; add 'schema'.")
    # Spark counts a CSV's columns as _c0, _c1, …; but what begins with _ is the record's own, and left out of values.
    names = [field.name.removeprefix("_") if source.format == "csv" else field.name for field in columns]
    kinds = [field.dataType.simpleString() for field in columns]
    return ", ".join(f"`{name}` {kind}" for name, kind in zip(names, kinds, strict=True))


def record_bytes(pipeline: Pipeline, cluster: ClusterAdmin) -> int | None:
    """The mean size of the newest values; None if there are none yet."""
    streams = [each for each in pipeline.topic_sources if not each.table]
    sample = [text for source in streams for text in _sample(cluster, partitions_of(source, cluster))]
    return max(1, sum(map(len, sample)) // len(sample)) if sample else None


def _options(source: TopicSource, pipeline: Pipeline) -> dict[str, str]:
    options = {
        **java_settings(pipeline.bootstrap, pipeline.kafka),
        "kafka.isolation.level": "read_committed",
        "includeHeaders": "true",
        "startingOffsets": source.start,
        "failOnDataLoss": "true" if source.on_data_loss == "fail" else "false",
    }
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.topics)
    if source.start_time_ms is not None:
        options["startingTimestamp"] = str(source.start_time_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"  # a time after the last record means the end
    if source.batch_records_max is not None:
        options["maxOffsetsPerTrigger"] = str(source.batch_records_max)
    return options


def _connector_options(source: TopicSource) -> dict[str, str]:
    """What the user set of the connector itself wins; other options are the format's."""
    known = (
        "minPartitions",
        "maxRecordsPerPartition",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
    )
    return {name: value for name, value in source.options.items() if name in known or name.startswith("kafka.")}


def enough_is_no_more_than_most(options: dict[str, str]) -> dict[str, str]:
    """A batch waits for as many records as make a good file; no more of them come than one batch may have."""
    least, most = options.get("minOffsetsPerTrigger"), options.get("maxOffsetsPerTrigger")
    if least is None or most is None or not (least.isdecimal() and most.isdecimal()) or int(least) <= int(most):
        return options
    return {**options, "minOffsetsPerTrigger": most}


def table_options(source: TopicSource, pipeline: Pipeline) -> dict[str, str]:
    """For a batch of a topic; where it starts and ends is the caller's to say."""
    return _of_table({**_options(source, pipeline), **_connector_options(source)})


def _of_table(options: Mapping[str, str]) -> dict[str, str]:
    streaming = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "startingTimestamp")
    return {**{k: v for k, v in options.items() if k not in streaming}, "startingOffsets": "earliest"}


def newest_of_each_key(rows: DataFrame) -> DataFrame:
    """A compacted topic as a table. A null value is a deletion."""
    from pyspark.sql import functions as f

    everything = f.struct(*(f.col(f"`{name}`") for name in rows.columns))
    newest = rows.groupBy("_topic", "_key").agg(f.max_by(everything, "_offset").alias("row"))
    return newest.select("row.*").where("_value IS NOT NULL")


def _counted(every: DataFrame, source: TopicSource) -> DataFrame:
    """Counts travel with Spark's progress: free, and right even when a batch is tried again."""
    from pyspark.sql import functions as f

    if source.on_malformed == "fail":
        return failing(every)
    counts = [f.count("*").alias("records"), f.count("_reason").alias("malformed")]
    if (source.format == "json" or source.is_framed) and source.on_unknown_fields == "count":
        unknown = f.col(UNKNOWN) if source.is_framed else _unknown_field(every)
        counts += [f.count(unknown).alias("unknown"), f.max(unknown).alias("unknown_field")]
    return every.observe(f"source:{source.name}", *counts)


def _unknown_field(every: DataFrame) -> Column:
    """A field of the record that the schema does not name, null if there is none: what a producer renamed or added
    would otherwise be a column of nulls that nobody hears of."""
    from pyspark.sql import functions as f

    known = every.select(f"{PARSED}.*").columns
    fields = f.json_object_keys(f.col("_value").cast("string"))
    return f.get(f.array_except(fields, f.array(*map(f.lit, known))), f.lit(0))


def failing(every: DataFrame) -> DataFrame:
    """The first malformed record ends the query, with its place."""
    from pyspark.sql import functions as f

    place = f.concat("_topic", f.lit("-"), f.col("_partition").cast("string"))
    problem = f.concat(f.lit("Malformed record in "), place, f.lit(" at offset "), f.col("_offset").cast("string"))
    return every.where(f.when(f.col("_reason").isNull(), True).otherwise(f.raise_error(problem).cast("boolean")))


def _sample(cluster: ClusterAdmin, partitions: list[Partition]) -> list[str]:
    from confluent_kafka import TopicPartition

    ranges = cluster.ranges(partitions)
    share = max(1, SAMPLE_RECORDS // max(1, len(ranges)))
    starts = [TopicPartition(t, p, max(low, high - share)) for (t, p), (low, high) in ranges.items() if high > low]
    if not starts:
        return []
    found: list[str] = []
    with cluster.consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True}) as reader:
        reader.assign(starts)
        ended = 0
        while ended < len(starts) and len(found) < SAMPLE_RECORDS and (message := reader.poll(10)) is not None:
            if message.error():
                ended += 1
            elif (value := message.value()) is not None:
                found.append(value.decode("utf-8", errors="replace"))
    return found
