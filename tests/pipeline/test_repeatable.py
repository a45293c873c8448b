"""Rows that may be others when a batch is tried again: they are not divided among writers by what is in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.sinks.batches import BY_KEY, BY_POSITION
from tidemark.pipeline.sinks.topic import division_of
from tidemark.pipeline.spec import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial

PLACE = "_topic, _partition, _offset"


def division(trial: Trial, spark: SparkSession, sql: str, *, writers: int = 2, **sink: str) -> str:
    described = {"from": "made", "topic": "elsewhere", "writers": writers, **sink}
    steps = json.dumps([{"name": "made", "sql": sql}])
    pipeline = trial.pipeline(f"steps={steps}", f"sinks={json.dumps({'out': described})}")
    stream = spark.readStream.format("rate").load()
    stream.selectExpr(
        "value AS a", "'t' AS _topic", "0 AS _partition", "value AS _offset", "timestamp AS _timestamp"
    ).createOrReplaceTempView("things")
    (out,) = pipeline.sinks
    assert isinstance(out, TopicSink)
    return division_of(spark.sql(sql), out, pipeline)


def test_rows_that_may_differ_when_tried_again_are_divided_by_their_place(trial: Trial, spark: SparkSession) -> None:
    """A part of the batch may be written. Divided by what is in them, rows would move to the writer that has its part,
    and be lost, or from it to the other, and be there twice."""
    table = f"{trial.checkpoint.parent}/table"
    spark.range(3).selectExpr("id AS a").write.parquet(table)
    for same in (
        f"SELECT a, {PLACE} FROM things",
        f"SELECT a, now() AS at, {PLACE} FROM things",  # the time of a stream's batch is in its checkpoint
        f"SELECT a, {PLACE} FROM things JOIN (VALUES (1), (2)) AS few(a) USING (a)",
    ):
        assert division(trial, spark, same) == BY_KEY, same
    for other in (
        f"SELECT uuid() AS a, {PLACE} FROM things",
        f"SELECT a, RAND() AS r, {PLACE} FROM things",
        f"SELECT a, {PLACE} FROM things JOIN parquet.`{table}` USING (a)",
        f"SELECT a, {PLACE} FROM things WHERE a IN (SELECT a FROM parquet.`{table}`)",
    ):
        assert division(trial, spark, other) == BY_POSITION, other
        assert division(trial, spark, other, writers=1) == BY_KEY
    assert division(trial, spark, f"SELECT a, {PLACE} FROM things", value="uuid()") == BY_POSITION
    with pytest.raises(CommandFailed, match=r"sinks\.out: rows that .* select _topic, _partition, _offset in the view"):
        division(trial, spark, "SELECT uuid() AS a FROM things")
