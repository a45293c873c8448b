"""Tables as sinks: exactly once through Spark's checkpoint and each format's commit log, and few files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed, ExitCode
from tidemark.pipeline.spec import FileSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DEFAULT_RECORD_BYTES = 512
ICEBERG_RESERVED = ("_partition", "_file", "_pos", "_spec_id", "_deleted")


def commit_by_size_or_time(sink: FileSink, *, record_bytes: int | None) -> dict[str, str]:
    """The connector's options that let a batch wait until there is enough for good files, but not for ever."""
    if sink.commit_every_s is None:
        return {}
    records = sink.target_file_bytes * sink.files // (record_bytes or DEFAULT_RECORD_BYTES)
    return {"minOffsetsPerTrigger": str(max(1, records)), "maxTriggerDelay": f"{int(sink.commit_every_s * 1000)}ms"}


def start(spark: SparkSession, view: DataFrame, sink: FileSink, writer: DataStreamWriter) -> StreamingQuery:
    """`writer` has name, checkpoint and trigger already; it is the view's own unless files must be gathered."""
    writer = writer.options(**sink.options)
    if sink.kind == "console":
        return writer.format("console").option("truncate", "false").start()
    prepare(spark, view, sink)
    if sink.kind == "iceberg":
        return writer.format("iceberg").option("fanout-enabled", "true").toTable(sink.path)
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if sink.kind == "delta":
        writer = writer.option("mergeSchema", "true")  # a new column is taken; older rows have it null
    return writer.format(sink.kind).start(local_path(sink.path))


def prepare(spark: SparkSession, view: DataFrame, sink: FileSink) -> None:
    """What must be so before the first batch: a table of Iceberg is there, and one of either kind fits."""
    if sink.kind == "iceberg":
        create_or_widen(spark, view, sink)
    elif sink.kind == "delta":
        require_fitting(columns_of_table(spark, sink), view, sink)


def gathered(view: DataFrame, sink: FileSink) -> DataFrame:
    """As many files as wanted per batch (and per partition of the table), not as many as there were tasks."""
    require_columns(view, sink)
    if not sink.is_table:
        return view
    return view.repartition(sink.files, *_plain_columns(sink))


def require_columns(view: DataFrame, sink: FileSink) -> None:
    for name in _plain_columns(sink):
        if name not in view.columns:
            message = f"sinks.{sink.name}.partition_by: the view {sink.view!r} has no column {name!r}."
            raise CommandFailed(message, code=ExitCode.USAGE)


def _plain_columns(sink: FileSink) -> list[str]:
    """Without Iceberg's transforms, such as days(at)."""
    return [each for each in sink.partition_by if "(" not in each]


def local_path(path: str) -> str:
    """A path of this machine must not depend on where Spark's processes stand."""
    return path if "://" in path else os.fspath(Path(path).absolute())


def table_name(sink: FileSink) -> str:
    """As SQL knows it."""
    return sink.path if sink.kind == "iceberg" else f"delta.`{local_path(sink.path)}`"


def create_or_widen(spark: SparkSession, view: DataFrame, sink: FileSink) -> None:
    """A table of Delta or Iceberg is made if it is missing, and gets the columns that are new."""
    if sink.kind == "iceberg":
        _require_free_names(view, sink)
    there = columns_of_table(spark, sink)
    if there is not None:
        _add_columns(spark, sink, require_fitting(there, view, sink))
        return
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in view.schema.fields)
    partitioned = f" PARTITIONED BY ({', '.join(sink.partition_by)})" if sink.partition_by else ""
    properties = ""
    if sink.kind == "iceberg":
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {sink.path.rpartition('.')[0]}")
        properties = f" TBLPROPERTIES ('write.target-file-size-bytes'='{sink.target_file_bytes}')"
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table_name(sink)} ({columns}) USING {sink.kind}{partitioned}{properties}")


def _require_free_names(view: DataFrame, sink: FileSink) -> None:
    """A table with a name of Iceberg's own could be written, but never compacted."""
    reserved = [name for name in view.columns if name in ICEBERG_RESERVED]
    if reserved:
        message = (
            f"sinks.{sink.name}: Iceberg keeps the name {reserved[0]!r} for itself; give the column another in a step."
        )
        raise CommandFailed(message, code=ExitCode.USAGE)


def columns_of_table(spark: SparkSession, sink: FileSink) -> dict[str, str] | None:
    """Names and types of the table as it is; None if there is none yet, or (Parquet) each file has its own."""
    if sink.kind == "iceberg":
        found = spark.table(sink.path) if spark.catalog.tableExists(sink.path) else None
    elif sink.kind == "delta" and delta_snapshot(spark, sink.path) is not None:
        found = spark.read.format("delta").load(local_path(sink.path))
    else:
        return None
    return None if found is None else {each.name: each.dataType.simpleString() for each in found.schema.fields}


def delta_snapshot(spark: SparkSession, path: str) -> Any | None:
    """A table of Delta's as it is now, whatever this session has seen of it before; None if there is none."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, local_path(path))
    snapshot = log.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty())
    return snapshot if snapshot.version() >= 0 else None


def require_fitting(there: Mapping[str, str] | None, view: DataFrame, sink: FileSink) -> dict[str, str]:
    """The columns that the table does not have yet. A column of another type is refused, before anything is written."""
    if there is None:
        return {}
    now = {field.name: field.dataType.simpleString() for field in view.schema.fields}
    other = [f"{name!r} is {there[name]} in the table and {kind} now" for name, kind in now.items()
             if there.get(name, kind) != kind]  # fmt: skip
    if other:
        message = f"sinks.{sink.name}: the table {sink.path} does not fit: {'; '.join(other)}."
        raise CommandFailed(message, code=ExitCode.USAGE)
    return {name: kind for name, kind in now.items() if name not in there}


def _add_columns(spark: SparkSession, sink: FileSink, missing: Mapping[str, str]) -> None:
    if missing:
        columns = ", ".join(f"`{name}` {kind}" for name, kind in missing.items())
        spark.sql(f"ALTER TABLE {table_name(sink)} ADD COLUMNS ({columns})")
