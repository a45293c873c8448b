"""Which batch a sink has written last, from what it wrote to: a checkpoint that is older is not gone on with.

Every kind of sink takes a batch whose number it has seen for a batch that it has. After a checkpoint was restored from
a copy, the same numbers stand for other records, and taking them for written would lose those in silence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint, as_json, batches_note
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.sinks.batches import Part, last_part, older_checkpoint
from tidemark.pipeline.sinks.files import local_path
from tidemark.pipeline.spec import FileSink, Sink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET_LOG = "_spark_metadata"
# Under which names a snapshot says which batch of which query it is. Ours are in small letters: Iceberg's options are.
ICEBERG_BY_SPARK = ("spark.sql.streaming.queryId", "spark.sql.streaming.epochId")
ICEBERG_BY_US = ("tidemark.query", "tidemark.batch")


def require_same_history(
    spark: SparkSession, sink: Sink, *, batches_topic: str, cluster: ClusterAdmin, checkpoint: Checkpoint
) -> None:
    """Raises CommandFailed if the sink has written what the checkpoint does not know of."""
    query, planned = checkpoint.query_id(sink.name), checkpoint.last_planned(sink.name)
    if isinstance(sink, TopicSink):
        part = last_part(cluster, batches_topic, query=query)
        if part is not None and is_older(checkpoint, sink.name, part):
            raise CommandFailed(f"sinks.{sink.name}: {older_checkpoint(part, -1 if planned is None else planned)}")
        if part is None:
            require_record_of_begun(sink, batches_topic, cluster, checkpoint)
        return
    written = last_batch_of_table(spark, sink, query=query)
    if written is not None and written > (-1 if planned is None else planned):
        raise CommandFailed(_older_than_table(sink, written=written, planned=planned))


def require_record_of_begun(sink: TopicSink, topic: str, cluster: ClusterAdmin, checkpoint: Checkpoint) -> None:
    """Whether a batch that was begun is written, that topic alone knows."""
    done, planned = checkpoint.last_batch(sink.name), checkpoint.last_planned(sink.name)
    if planned is None or (done is not None and planned <= done):
        return
    was = checkpoint.read_note(batches_note(sink.name)).get("id", None if done is None else "")
    if was is None or _is_the_same(topic, was, cluster):
        return
    ends = json.dumps(as_json(checkpoint.planned(sink.name, planned)))
    raise CommandFailed(
        f"sinks.{sink.name}: batch {planned} was begun, and the topic {topic!r}, which says whether it is written, is "
        "gone. Going on could write its rows twice. See whether they are in the sink's topic; then start with an empty "
        f"checkpoint and a 'start' after the batch (its records end before {ends}), or where it began."
    )


def _is_the_same(topic: str, was: str, cluster: ClusterAdmin) -> bool:
    """The topic of this id (empty: not known) is there."""
    return topic in cluster.topics() and (not was or cluster.topic_ids([topic]).get(topic, was) == was)


def is_older(checkpoint: Checkpoint, sink: str, part: Part) -> bool:
    planned = checkpoint.last_planned(sink)
    if planned is None or part.batch > planned:
        return True
    ends = as_json(checkpoint.planned(sink, part.batch))
    return bool(ends) and bool(part.ends) and ends != part.ends


def last_batch_of_table(spark: SparkSession, sink: FileSink, *, query: str | None) -> int | None:
    """By the table's own log. Parquet's does not know of queries: any batch in it counts. Merges whose rows have an
    order of their own are not in it: done again, they change nothing."""
    if sink.kind == "parquet":
        return _last_of_parquet(spark, sink.path)
    if sink.kind == "delta":
        return None if query is None else _last_of_delta(spark, sink.path, query)
    if sink.kind == "iceberg":
        return None if query is None else _last_of_iceberg(spark, sink.path, query)
    return None


def _last_of_parquet(spark: SparkSession, path: str) -> int | None:
    """Listed as Spark does, so wherever Spark can write: a table in an object store has the same log."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.hadoop.fs.Path(local_path(path), PARQUET_LOG)
    store = log.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not store.exists(log):
        return None
    names = (each.getPath().getName().removesuffix(".compact") for each in store.listStatus(log))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _last_of_delta(spark: SparkSession, path: str, query: str) -> int | None:
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, local_path(path))
    if not delta.tableExists():
        return None
    found = delta.update(False, jvm.scala.Option.empty(), jvm.scala.Option.empty()).transactions().get(query)
    return int(found.get()) if found.isDefined() else None


def _last_of_iceberg(spark: SparkSession, table: str, query: str) -> int | None:
    if not spark.catalog.tableExists(table):
        return None
    summaries = spark.sql(f"SELECT summary FROM {table}.snapshots").collect()
    epochs = [
        int(row.summary[of_batch])
        for of_query, of_batch in (ICEBERG_BY_SPARK, ICEBERG_BY_US)
        for row in summaries
        if row.summary.get(of_query) == query and of_batch in row.summary
    ]
    return max(epochs, default=None)


def _older_than_table(sink: FileSink, *, written: int, planned: int | None) -> str:
    knows = "knows of none" if planned is None else f"goes only to batch {planned}"
    return (
        f"sinks.{sink.name}: the table {sink.path} has batches up to {written}, and the checkpoint {knows}: was it "
        "deleted, or restored from a copy? Spark would take as many batches for written, and lose their rows. Restore "
        "a copy that was made later; or give the sink another 'path', and start with an empty checkpoint."
    )
