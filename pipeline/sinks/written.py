"""Which batch a sink has written last, from what it wrote to: a checkpoint that is older is not gone on with.

Every kind of sink takes a batch whose number it has seen for a batch that it has. After a checkpoint was restored from
a copy, the same numbers stand for other records, and taking them for written would lose those in silence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidemark.failure import CommandFailed
from tidemark.pipeline.checkpoint import Checkpoint, as_json, batches_note
from tidemark.pipeline.cluster import ClusterAdmin, Partition
from tidemark.pipeline.sinks.batches import Part, has_parts, last_part, older_checkpoint
from tidemark.pipeline.sinks.files import columns_of_table, delta_snapshot, local_path
from tidemark.pipeline.spec import FileSink, Sink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARQUET_LOG = "_spark_metadata"
# Under which names a snapshot says which batch of which query it is. Ours are in small letters: Iceberg's options are.
ICEBERG_BY_SPARK = ("spark.sql.streaming.queryId", "spark.sql.streaming.epochId")
ICEBERG_BY_US = ("tidemark.query", "tidemark.batch")


def require_same_history(
    spark: SparkSession, sink: Sink, *, batches_topic: str, cluster: ClusterAdmin, checkpoint: Checkpoint
) -> str | None:
    """Raises CommandFailed if the sink has written what the checkpoint does not know of. What there is to say about it
    otherwise: a checkpoint that was deleted leaves what was written, and with a new one everything comes again."""
    if isinstance(sink, TopicSink):
        _require_same_topic(sink, batches_topic, cluster, checkpoint)
    else:
        _require_same_table(spark, sink, checkpoint)
    if checkpoint.exists(sink.name) or sink.mode == "upsert":
        return None
    if isinstance(sink, TopicSink):
        place, is_written = f"the topic {sink.topic}", has_parts(cluster, batches_topic)
    else:
        place, is_written = f"the table {sink.path}", has_batches(spark, sink)
    if not is_written:
        return None
    return (
        f"sinks.{sink.name}: {place} has batches that were written with another checkpoint. This one is new and begins "
        "at the sources' 'start': what is there already comes again."
    )


def _require_same_topic(sink: TopicSink, batches_topic: str, cluster: ClusterAdmin, checkpoint: Checkpoint) -> None:
    part = last_part(cluster, batches_topic, query=checkpoint.query_id(sink.name))
    if part is None:
        require_record_of_begun(sink, batches_topic, cluster, checkpoint)
    elif is_older(checkpoint, sink.name, part):
        planned = checkpoint.last_planned(sink.name)
        raise CommandFailed(f"sinks.{sink.name}: {older_checkpoint(part, -1 if planned is None else planned)}")


def _require_same_table(spark: SparkSession, sink: FileSink, checkpoint: Checkpoint) -> None:
    planned, done = checkpoint.last_planned(sink.name), checkpoint.last_batch(sink.name)
    written = last_batch_of_table(spark, sink, query=checkpoint.query_id(sink.name))
    if written is not None and written > (-1 if planned is None else planned):
        raise CommandFailed(_older_than_table(sink, written=written, planned=planned))
    if sink.is_table and done is not None and not _is_there(spark, sink):
        raise CommandFailed(_gone(sink, done=done, ends=checkpoint.positions(sink.name)))


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


def has_batches(spark: SparkSession, sink: FileSink) -> bool:
    """Of any query, by the table's own log. (Parquet's are refused: Spark would take ours for those.)"""
    if sink.kind == "delta":
        found = _transactions(spark, sink.path)
        return found is not None and not found.isEmpty()
    return sink.kind == "iceberg" and bool(_batches_of_iceberg(spark, sink.path))


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


def _is_there(spark: SparkSession, sink: FileSink) -> bool:
    """For Parquet, anything at all: of a table that was compacted by other means the log may be gone."""
    if sink.kind == "parquet":
        path, store = _place(spark, local_path(sink.path))
        return bool(store.exists(path)) and len(store.listStatus(path)) > 0
    return columns_of_table(spark, sink) is not None


def _last_of_parquet(spark: SparkSession, path: str) -> int | None:
    """Listed as Spark does, so wherever Spark can write: a table in an object store has the same log."""
    log, store = _place(spark, f"{local_path(path)}/{PARQUET_LOG}")
    if not store.exists(log):
        return None
    names = (each.getPath().getName().removesuffix(".compact") for each in store.listStatus(log))
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _place(spark: SparkSession, place: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(place)
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def _last_of_delta(spark: SparkSession, path: str, query: str) -> int | None:
    found = _transactions(spark, path)
    last = None if found is None else found.get(query)
    return int(last.get()) if last is not None and last.isDefined() else None


def _transactions(spark: SparkSession, path: str) -> Any | None:
    """The last batch of each query, as Scala's map; None if there is no table."""
    snapshot = delta_snapshot(spark, path)
    return None if snapshot is None else snapshot.transactions()


def _last_of_iceberg(spark: SparkSession, table: str, query: str) -> int | None:
    return max((batch for of, batch in _batches_of_iceberg(spark, table) if of == query), default=None)


def _batches_of_iceberg(spark: SparkSession, table: str) -> list[tuple[str, int]]:
    """Query and batch of each snapshot that is one."""
    if not spark.catalog.tableExists(table):
        return []
    summaries = [row.summary for row in spark.sql(f"SELECT summary FROM {table}.snapshots").collect()]
    return [
        (each[of_query], int(each[of_batch]))
        for of_query, of_batch in (ICEBERG_BY_SPARK, ICEBERG_BY_US)
        for each in summaries
        if of_query in each and of_batch in each
    ]


def _older_than_table(sink: FileSink, *, written: int, planned: int | None) -> str:
    knows = "knows of none" if planned is None else f"goes only to batch {planned}"
    return (
        f"sinks.{sink.name}: the table {sink.path} has batches up to {written}, and the checkpoint {knows}: was it "
        "deleted, or restored from a copy? Spark would take as many batches for written, and lose their rows. Restore "
        "a copy that was made later; or give the sink another 'path', and start with an empty checkpoint."
    )


def _gone(sink: FileSink, *, done: int, ends: Mapping[Partition, int]) -> str:
    return (
        f"sinks.{sink.name}: the table {sink.path} is gone, and the checkpoint knows of batches up to {done} that were "
        "written to it: those that come would be all that is in it. Is its place mounted? Put it back; or start with "
        "an empty checkpoint, which writes everything again, or, with a 'start' of the sources' offsets "
        f"{json.dumps(as_json(ends))}, what comes next."
    )
