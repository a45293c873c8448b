"""Tables of each kind: written by a pipeline, compacted, and written to again; nothing lost, nothing twice."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.compaction import compact
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
