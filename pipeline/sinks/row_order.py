"""Merged tables whose rows have no order of their own (`order_by`): by what they are ordered must mean the same as
before, or changes would count as older than the rows that are there, and be left out in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.failure import CommandFailed
from tidemark.pipeline.sinks.upsert import ORDER, Merge
from tidemark.pipeline.spec import FileSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = "tidemark.topics"  # a table's property: the ids of the topics whose offsets order its rows


def require_same_order(
    spark: SparkSession, sink: FileSink, merge: Merge, *, topic_ids: Mapping[str, str], planned: int | None
) -> None:
    """`planned`: the newest batch that the checkpoint knows of."""
    if merge.by_batch:
        _require_later_batches(spark, sink, merge, planned)
    elif sink.order_by is None:
        _require_same_topics(spark, sink, merge, topic_ids, begins=planned is None)


def _require_later_batches(spark: SparkSession, sink: FileSink, merge: Merge, planned: int | None) -> None:
    [row] = spark.sql(f"SELECT max(`{ORDER}`) AS newest FROM {merge.table}").collect()
    if row.newest is not None and row.newest > (-1 if planned is None else planned):
        knows = "knows of none" if planned is None else f"goes only to batch {planned}"
        raise CommandFailed(
            f"sinks.{sink.name}: the table {sink.path} has rows of batch {row.newest}, and the checkpoint {knows}: was "
            "it deleted, or restored from a copy? Rows are ordered by their batch, so those of earlier numbers would "
            "be left out. Give the sink another 'path', or an 'order_by'."
        )


def _require_same_topics(
    spark: SparkSession, sink: FileSink, merge: Merge, now: Mapping[str, str], *, begins: bool
) -> None:
    """A checkpoint that goes on has its own word on topics that were made anew, and goes on at their old offsets."""
    rows = spark.sql(f"SHOW TBLPROPERTIES {merge.table}").collect()
    noted: dict[str, str] = next((json.loads(row.value) for row in rows if row.key == TOPICS), {})
    anew = sorted(name for name, was in noted.items() if now.get(name, was) != was)
    if anew and begins:
        raise CommandFailed(
            f"sinks.{sink.name}: the rows of {sink.path} are ordered by offsets of topics that were deleted since, and "
            f"made anew: {', '.join(anew)}. Changes with lower offsets would be left out. Give the sink another "
            "'path', or an 'order_by'."
        )
    if noted != {**noted, **now}:
        text = json.dumps({**noted, **now}, sort_keys=True)
        spark.sql(f"ALTER TABLE {merge.table} SET TBLPROPERTIES ('{TOPICS}'='{text}')")
