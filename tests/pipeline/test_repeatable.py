"""Rows that may be others when a batch is tried again: they are not divided among writers by what is in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.sinks.batches import BY_KEY, BY_POSITION
from tidemark.pipeline.sinks.topic import division_of
from tidemark.pipeline.spec import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.conftest import Produce, Trial

Committed = Callable[[str], list[GeneratedRecord]]
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


def test_what_a_python_step_makes_is_divided_by_its_place(trial: Trial, spark: SparkSession) -> None:
    """What a function does by chance, nobody can see."""
    stream = spark.readStream.format("rate").load()
    rows = stream.selectExpr("value AS a", "'t' AS _topic", "0 AS _partition", "value AS _offset")
    steps = json.dumps([{"name": "made", "from": "things", "python": "own_steps:made"}])
    sinks = json.dumps({"out": {"from": "made", "topic": "elsewhere", "writers": 2}})
    pipeline = trial.pipeline(f"steps={steps}", f"sinks={sinks}")
    (out,) = pipeline.topic_sinks
    assert division_of(rows, out, pipeline) == BY_POSITION
    with pytest.raises(CommandFailed, match=r"sinks\.out: .* a step in Python may differ .* or set 'writers: 1'"):
        division_of(rows.drop("_offset"), out, pipeline)


def test_writers_behind_dedupe_are_chosen_by_its_keys_or_there_is_one(trial: Trial, spark: SparkSession) -> None:
    """Of two records with one key, tried again, the other one may be kept: by what differs in them they would go to
    different writers, one of which has its part of the batch."""
    stream = spark.readStream.format("rate").load()
    rows = stream.selectExpr("value AS id", "value % 2 AS page", "timestamp AS at", "'t' AS _topic", "0 AS _partition")
    unique = rows.withColumn("_offset", rows.id).withWatermark("at", "1 minute").dropDuplicatesWithinWatermark(["id"])

    def division(view: DataFrame, *, key: str | None = None, writers: int = 2) -> str:
        described = {"from": "things", "topic": "elsewhere", "writers": writers, **({"key": key} if key else {})}
        pipeline = trial.pipeline(f"sinks={json.dumps({'out': described})}")
        (out,) = pipeline.topic_sinks
        return division_of(view, out, pipeline)

    assert division(unique, key="id") == BY_KEY
    assert division(unique.where("page = 1").selectExpr("id", "page + 1 AS page"), key="concat('n', id)") == BY_KEY
    assert division(rows, key="page") == BY_KEY
    for view, key in ((unique, "page"), (unique, None), (unique.selectExpr("page AS id"), "id")):
        assert division(view, key=key, writers=1) == BY_KEY
        with pytest.raises(CommandFailed, match=r"sinks\.out: .* 'dedupe' may keep another .* or set 'writers: 1'"):
            division(view, key=key)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_sinks_between_which_a_named_table_divides_rows_are_refused(
    trial: Trial, spark: SparkSession, kind: str
) -> None:
    """A batch is tried again after the table has changed: a row that one sink has would go to the other, too."""
    table = f"{kind}.`{trial.checkpoint.parent}/table`"
    spark.range(3).selectExpr("id AS a").write.format(kind).save(f"{trial.checkpoint.parent}/table")
    joined = f"SELECT things.a, t.a IS NOT NULL AS known FROM things LEFT JOIN {table} AS t ON things.a = t.a"
    by_rule = [{"name": "checked", "sql": joined, "rules": {"known": "known"}}]
    by_filter = [{"name": n, "sql": f"SELECT a FROM things WHERE a {n} IN (SELECT a FROM {table})"} for n in ("not",)]
    by_join = [{"name": "known", "sql": f"SELECT things.a FROM things JOIN {table} AS t ON things.a = t.a"}]
    trial.produce(b'{"a": 1}', b'{"a": 7}')

    def running(steps: Sequence[object], *views: str, more: tuple[str, ...] = ()) -> None:
        sinks = {f"s{at}": {"from": view, "topic": f"{trial.name}-{view}"} for at, view in enumerate(views)}
        schema = "sources.things.schema={a: LONG}"
        trial.run(schema, f"steps={json.dumps(steps)}", f"sinks={json.dumps(sinks)}", *more)

    for steps, views in (
        (by_rule, ("checked", "checked_rejected")),
        ([*by_filter, *by_join], ("not", "known")),
    ):
        with pytest.raises(CommandFailed, match=r"sinks\.s0 and sinks\.s1: a table .* 'type: table' source") as refused:
            running(steps, *views)
        assert refused.value.code == 2
    assert not (trial.checkpoint / "sinks").exists()
    running(by_join, "known", "things")  # one sink alone is chosen for; the other one gets everything
    running(by_rule, "checked", "checked_rejected", more=("tables_change=false", f"checkpoint={trial.checkpoint}2"))


def test_a_batch_of_a_python_step_that_differs_when_tried_again_is_written_once(
    trial: Trial, cluster: ClusterAdmin, produce: Produce, committed: Committed
) -> None:
    """One writer's part is refused by the broker while the other's is written; then the function makes other rows."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    things, good, small = (f"stepped-{each}" for each in ("things", "good", "small"))
    trial.create_topic(things, partitions=8)
    trial.create_topic(good)
    cluster.create_topic(small, partitions=1, config={"max.message.bytes": "60"})
    produce(GeneratedRecord(topic=things, key=b"%d" % n, value=b'{"id": %d}' % n) for n in range(40))
    beside = trial.file.parent  # no other test may have a module of this name: Spark ships each name once
    (beside / "changing_steps.py").write_text(
        "from pathlib import Path\nfrom pyspark.sql import functions as f\n\n\ndef named(rows):\n"
        "    name = (Path(__file__).parent / 'name.txt').read_text()\n"
        f"    to = f.when(f.col('_partition') == 0, '{small}').otherwise('{good}')\n"
        "    return rows.withColumns({'name': f.lit(name), 'to': to})\n"
    )
    (beside / "name.txt").write_text("old")
    # By these keys, half of the rows would change their writer with what the function makes.
    key = f"IF(to = '{small}', 'refused', concat(name, id))"
    sinks = {"out": {"from": "named", "topic_column": "to", "key": key, "writers": 2}}
    described = [
        f"sources={json.dumps({'things': {'topic': things, 'format': 'json', 'schema': {'id': 'LONG'}}})}",
        f"steps={json.dumps([{'name': 'named', 'from': 'things', 'python': 'changing_steps:named'}])}",
        f"sinks={json.dumps(sinks)}",
    ]

    def written() -> list[tuple[int, str]]:
        found = [json.loads(each.value or b"") for topic in (good, small) for each in committed(topic)]
        return sorted((row["id"], row["name"]) for row in found)

    with pytest.raises(CommandFailed):
        trial.run(*described, "restarts_max=0")
    first = written()
    assert 0 < len(first) < 40
    (beside / "name.txt").write_text("new")
    large = ConfigEntry("max.message.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, small, incremental_configs=[large])
    cluster.admin.incremental_alter_configs([resource])[resource].result()
    trial.run(*described)
    old = {number for number, _ in first}
    assert written() == [(number, "old" if number in old else "new") for number in range(40)]
