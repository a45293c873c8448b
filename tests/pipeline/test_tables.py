"""Tables of each kind: written by a pipeline, compacted, and written to again; nothing lost, nothing twice."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.compaction import compact, recover
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.maintenance import Upkeep, maintain
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial

YAML = """\
name: tables
sources:
  lines: {{topic: {topic}, format: string, batch_records_max: 20}}
steps:
  - name: values
    sql: SELECT value, _offset FROM lines
sinks:
  table: {{type: {kind}, from: values, path: {path}}}
"""


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_survives_compaction(
    spark: SparkSession,
    bootstrap: str,
    cluster: ClusterAdmin,
    produce: Callable[[Iterable[GeneratedRecord]], None],
    tmp_path: Path,
    kind: str,
) -> None:
    topic = f"lines-{kind}"
    path = "lake.db.lines" if kind == "iceberg" else str(tmp_path / "table")
    cluster.create_topic(topic, partitions=1)
    file = tmp_path / "tables.yaml"
    file.write_text(YAML.format(topic=topic, kind=kind, path=path))

    def run(first: int, last: int) -> list[str]:
        produce(GeneratedRecord(topic=topic, key=None, value=str(n).encode()) for n in range(first, last))
        overrides = [f"bootstrap={bootstrap}", f"checkpoint={tmp_path}/checkpoint"]
        Runner(spark, load(file, overrides=overrides), once=True, out=io.StringIO()).run()
        table = spark.table(path) if kind == "iceberg" else spark.read.format(kind).load(path)
        return sorted((row["value"] for row in table.select("value").collect()), key=int)

    assert run(0, 60) == [str(n) for n in range(60)]
    assert compact(spark, path, target_file_bytes=1 << 20).endswith("3 files became 1.")
    assert run(60, 80) == [str(n) for n in range(80)]


def test_a_column_that_iceberg_has_itself_is_refused(
    spark: SparkSession, bootstrap: str, cluster: ClusterAdmin, tmp_path: Path
) -> None:
    cluster.create_topic("reserved", partitions=1)
    file = tmp_path / "tables.yaml"
    file.write_text(YAML.format(topic="reserved", kind="iceberg", path="lake.db.reserved"))
    overrides = [f"bootstrap={bootstrap}", f"checkpoint={tmp_path}/checkpoint", "sinks.table.from=lines"]
    with pytest.raises(CommandFailed, match="Iceberg keeps the name '_partition' for itself"):
        Runner(spark, load(file, overrides=overrides), once=True, out=io.StringIO()).run()


def test_a_table_that_is_not_there_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="There is no table"):
        compact(spark, str(tmp_path / "none"), target_file_bytes=1)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_new_column_is_taken_and_one_of_another_type_refused(trial: Trial, spark: SparkSession, kind: str) -> None:
    path = f"lake.db.n{trial.name[-8:]}" if kind == "iceberg" else f"{trial.checkpoint.parent}/table"

    def run(columns: str) -> list[tuple[object, ...]]:
        step = json.dumps([{"name": "s", "sql": f"SELECT {columns} FROM things"}])
        sink = f"sinks={{table: {{type: {kind}, from: s, path: {path}}}}}"
        trial.run("sources.things.schema={a: LONG, b: STRING}", f"steps={step}", sink)
        table = spark.table(path) if kind == "iceberg" else spark.read.format("delta").load(path)
        return sorted(tuple(row) for row in table.orderBy("a").collect())

    trial.produce(b'{"a": 1, "b": "x"}')
    assert run("a") == [(1,)]
    trial.produce(b'{"a": 2, "b": "y"}')
    assert run("a, b") == [(1, None), (2, "y")]
    with pytest.raises(CommandFailed, match=r"does not fit: 'a' is bigint in the table and string now"):
        run("CAST(a AS STRING) AS a, b")


def test_with_once_a_table_gets_what_is_there_however_little(trial: Trial, spark: SparkSession) -> None:
    """Of a batch that waits for enough to make a good file, nobody would come back for the rest."""
    trial.produce(*(b'{"a": %d}' % number for number in range(5)))
    path = f"{trial.checkpoint.parent}/table"
    sink = f"sinks={{table: {{type: parquet, from: things, path: {path}, commit_every: 1 hour}}}}"
    trial.run("sources.things.schema={a: LONG}", "sources.things.batch_records_max=2", sink)
    assert sorted(row.a for row in spark.read.parquet(path).collect()) == list(range(5))


def test_a_missing_iceberg_table_is_one_sentence(spark: SparkSession) -> None:
    with pytest.raises(CommandFailed, match=r"There is no table lake\.db\.nothing in /"):
        compact(spark, "lake.db.nothing", target_file_bytes=1)


def test_a_compacted_table_has_the_columns_of_all_its_files(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads the columns of one file, and leaves out what others have more."""
    table = str(tmp_path / "grown")
    spark.range(3).selectExpr("id").coalesce(1).write.parquet(table)
    spark.range(3, 5).selectExpr("id", "id * 10 AS tens").coalesce(1).write.mode("append").parquet(table)
    spark.range(5, 6).selectExpr("id", "'five' AS name").coalesce(1).write.mode("append").parquet(table)
    for _ in range(2):
        compact(spark, table, target_file_bytes=1 << 20)
        rows = sorted((row.id, row.tens, row.name) for row in spark.read.parquet(table).collect())
        assert rows[2:] == [(2, None, None), (3, 30, None), (4, 40, None), (5, None, "five")]
        assert len(rows) == 6
    spark.range(1).selectExpr("'x' AS id").write.mode("append").parquet(table)
    with pytest.raises(CommandFailed, match=r"cannot be read together: .*\"BIGINT\" and \"STRING\""):
        compact(spark, table, target_file_bytes=1 << 20)


def test_a_log_that_a_killed_compaction_left_aside_is_put_back_before_more_is_written(
    trial: Trial, spark: SparkSession
) -> None:
    table = trial.checkpoint.parent / "table"
    described = ["sources.things.schema={a: LONG}", f"sinks={{t: {{type: parquet, from: things, path: {table}}}}}"]
    trial.produce(b'{"a": 1}')
    trial.run(*described)
    (table / "_spark_metadata").rename(table / "_spark_metadata.old")
    trial.produce(b'{"a": 2}')
    trial.run(*described)
    assert sorted(row.a for row in spark.read.parquet(str(table)).collect()) == [1, 2]
    # Moved, its log still names the old place: none of its files may be taken for one that is in no log.
    moved = table.rename(table.with_name("moved"))
    files = sorted(moved.glob("*.parquet"))
    for file in files:
        os.utime(file, (0, 0))
    upkeep = Upkeep(target_file_bytes=1 << 20, keep_s=0.0, orphans_s=86400.0, dry_run=True)
    for dry_run in (True, False):
        with pytest.raises(CommandFailed, match=r"its log names .*/table/part-.* was the table moved"):
            maintain(spark, str(moved), replace(upkeep, dry_run=dry_run))
    assert sorted(moved.glob("*.parquet")) == files


def test_a_table_without_a_log_survives_a_kill_at_any_moment(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "plain"
    rows = spark.range(90).selectExpr("id", "id % 2 AS half")
    rows.repartition(3).write.partitionBy("half").parquet(str(table))

    def numbers() -> list[int]:
        return sorted(row.id for row in spark.read.parquet(str(table)).select("id").collect())

    real = Path.rename
    for killed_at in (1, 2, 3, 4):  # renames: each new file into its place, then the two directories
        left = [killed_at]

        def rename(path: Path, target: Path, left: list[int] = left) -> Path:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(path, target)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Path, "rename", rename)
            with pytest.raises(KeyboardInterrupt):
                compact(spark, str(table), target_file_bytes=1 << 20)
        recover(table)
        assert numbers() == list(range(90))
    compact(spark, str(table), target_file_bytes=1 << 20)
    assert numbers() == list(range(90))
    assert len(list(table.rglob("*.parquet"))) == 2
    assert [each.name for each in tmp_path.iterdir()] == ["plain"]
