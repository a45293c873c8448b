"""Changes merged into tables: the newest of each key stays, however late, often or in whatever order they come."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.sinks.upsert import Merge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.conftest import Trial

COLUMNS = "sources.things={{topic: {name}, format: debezium, schema: {{id: LONG, name: STRING}}}}"


def change(op: str, number: int, name: str | None, *, at: int, wrapped: bool = False) -> bytes:
    row = {"id": number, "name": name}
    envelope: dict[str, Any] = {
        "op": op,
        "ts_ms": at,
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
    }
    return json.dumps({"schema": {}, "payload": envelope} if wrapped else envelope).encode()


def test_a_soft_delete_is_an_update_and_a_hard_one_deletes() -> None:
    hard = Merge(table="t", keys=("a", "b"), columns=("a", "b", "c"), soft=False).sql("s")
    assert "ON t.`a` <=> s.`a` AND t.`b` <=> s.`b`" in hard
    assert "THEN DELETE" in hard
    assert "INSERT (`a`, `b`, `c`, `__order`)" in hard
    soft = Merge(table="t", keys=("a",), columns=("a", "c"), soft=True).sql("s")
    assert "DELETE\n" not in soft
    assert "t.`__deleted` = s.`__deleted`" in soft


def path_of(trial: Trial, kind: str) -> str:
    return f"lake.db.u{trial.name[-8:]}" if kind == "iceberg" else f"{trial.checkpoint.parent}/table"


def table_at(spark: SparkSession, path: str, kind: str) -> DataFrame:
    return spark.table(path) if kind == "iceberg" else spark.read.format(kind).load(path)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_debezium_changes_become_the_table_that_they_are_of(trial: Trial, spark: SparkSession, kind: str) -> None:
    path = path_of(trial, kind)
    sink = f"{{type: {kind}, from: things, path: {path}, mode: upsert, keys: [id], order_by: _changed_ms}}"

    def run() -> list[tuple[int, str]]:
        trial.run(COLUMNS.format(name=trial.name), f"sinks={{table: {sink}}}")
        table = table_at(spark, path, kind)
        return sorted((row.id, row.name) for row in table.collect())

    trial.produce(
        change("r", 1, "one", at=10),
        change("c", 2, "two", at=11, wrapped=True),
        change("u", 1, "uno", at=12),
        change("c", 3, "three", at=13),
        change("d", 3, "three", at=14),
        None,
    )
    assert run() == [(1, "uno"), (2, "two")]
    copy = trial.checkpoint.with_name("copy")
    shutil.copytree(trial.checkpoint, copy)
    trial.produce(
        change("u", 1, "late", at=5),  # older than what the table has
        change("u", 2, "zwei", at=20),
        change("u", 2, "zwei", at=20),  # twice
        change("u", 2, "dos", at=19),
    )
    assert run() == [(1, "uno"), (2, "zwei")]
    shutil.rmtree(trial.checkpoint)
    copy.rename(trial.checkpoint)
    trial.produce(change("d", 1, "uno", at=30))
    assert run() == [(2, "zwei")]  # the second batch once more, over more records: nothing doubled, nothing lost


def test_what_is_no_envelope_or_names_no_row_is_malformed(
    trial: Trial, committed: Callable[[str], list[GeneratedRecord]]
) -> None:
    """Left out in silence, a truncate or a delete without its row would leave rows in the table for good."""
    truncate, message = (json.dumps({"op": op, "ts_ms": 2}).encode() for op in ("t", "m"))
    rowless = json.dumps({"op": "d", "before": None, "ts_ms": 3}).encode()
    trial.produce(b'{"id": 1}', change("c", 1, "one", at=1), truncate, rowless, message, None)
    step = json.dumps([{"name": "s", "sql": "SELECT id, _op FROM things"}])
    described = [COLUMNS.format(name=trial.name), f"steps={step}", "sinks.out.from=s"]
    trial.run(*described, f"sources.things.dead_letter_topic={trial.name}-dead")
    reasons = [dict(each.headers)["dead-letter-reason"] for each in committed(f"{trial.name}-dead")]
    assert reasons == [
        b"the value is not debezium of the schema",
        b"a truncate does not say which rows are gone",
        b"a change without its row, op d",
    ]
    assert [json.loads(each.value or b"") for each in committed(f"{trial.name}-out")] == [{"id": 1}]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_aggregate_is_kept_up_to_date(trial: Trial, spark: SparkSession, kind: str) -> None:
    path = path_of(trial, kind)
    step = json.dumps([{"name": "s", "sql": "SELECT a, count(*) AS n FROM things GROUP BY a"}])
    sink = f"sinks={{table: {{type: {kind}, from: s, path: {path}, mode: upsert, keys: [a]}}}}"
    described = ["sources.things.schema={a: LONG}", f"steps={step}", sink]
    copy = trial.checkpoint.with_name("copy")
    for counts in ([(1, 2)], [(1, 3), (2, 1)]):
        if trial.checkpoint.exists():
            shutil.copytree(trial.checkpoint, copy)
        trial.produce(*([b'{"a": 1}'] * 2 if counts == [(1, 2)] else [b'{"a": 1}', b'{"a": 2}']))
        trial.run(*described)
        assert sorted((row.a, row.n) for row in table_at(spark, path, kind).collect()) == counts
    # Rows without an order of their own are ordered by batches: those of a checkpoint that was put back mean others.
    shutil.rmtree(trial.checkpoint)
    copy.rename(trial.checkpoint)
    trial.produce(b'{"a": 3}')
    with pytest.raises(CommandFailed, match=r"has batches up to 1, and the checkpoint goes only to batch 0"):
        trial.run(*described)
    shutil.rmtree(trial.checkpoint)
    with pytest.raises(CommandFailed, match=r"has rows of batch 1, and the checkpoint knows of none"):
        trial.run(*described)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_offsets_of_a_topic_made_anew_do_not_order_rows_of_the_old_one(
    trial: Trial, spark: SparkSession, cluster: ClusterAdmin, kind: str
) -> None:
    """Their changes would count as older than the rows that are there, and be left out."""
    path = path_of(trial, kind)
    sink = f"sinks={{table: {{type: {kind}, from: things, path: {path}, mode: upsert, keys: [a]}}}}"
    described = ["sources.things.schema={a: LONG, b: STRING}", sink]

    def run() -> list[tuple[int, str]]:
        trial.run(*described)
        return [(row.a, row.b) for row in table_at(spark, path, kind).collect()]

    trial.produce(b'{"a": 1, "b": "x"}', b'{"a": 1, "b": "y"}')
    assert run() == [(1, "y")]
    shutil.rmtree(trial.checkpoint)
    assert run() == [(1, "y")]  # of the same topic once more: nothing changes
    cluster.admin.delete_topics([trial.name])[trial.name].result()
    trial.create_topic(trial.name)
    trial.produce(b'{"a": 1, "b": "z"}')
    shutil.rmtree(trial.checkpoint)
    with pytest.raises(CommandFailed, match=rf"ordered by offsets of topics that were deleted .* anew: {trial.name}\."):
        run()


def test_a_merged_table_takes_new_columns(trial: Trial, spark: SparkSession) -> None:
    path = path_of(trial, "iceberg")
    sink = f"sinks={{table: {{type: iceberg, from: s, path: {path}, mode: upsert, keys: [a], deletes: soft}}}}"

    def run(columns: str) -> list[tuple[object, ...]]:
        step = json.dumps([{"name": "s", "sql": f"SELECT {columns}, _offset, _tombstone FROM things"}])
        trial.run("sources.things.schema={a: LONG, b: STRING}", f"steps={step}", sink)
        return sorted(tuple(row) for row in spark.table(path).drop("__order").collect())

    trial.produce(b'{"a": 1, "b": "x"}', b'{"a": 2, "b": "y"}')
    assert run("a") == [(1, False), (2, False)]
    trial.produce(b'{"a": 2, "b": "z"}')
    assert run("a, b") == [(1, False, None), (2, False, "z")]
    with pytest.raises(CommandFailed, match=r"'a' is bigint in the table and string now"):
        run("CAST(a AS STRING) AS a, b")


def test_a_key_that_the_view_lacks_is_told(trial: Trial) -> None:
    trial.produce(b'{"a": 1}')
    sink = f"sinks={{t: {{type: delta, from: things, path: {trial.checkpoint.parent}/t, mode: upsert, keys: [z]}}}}"
    with pytest.raises(CommandFailed, match=r"sinks\.t\.keys: the view 'things' has no column 'z'"):
        trial.run("sources.things.schema={a: LONG}", sink)
