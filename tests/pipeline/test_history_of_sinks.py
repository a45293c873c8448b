"""Restored checkpoints, recreated topics, tables that change meanwhile: nothing is lost or doubled in silence."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidemark
from tests.pipeline.conftest import Trial, committed_of, producing_to
from tidemark.failure import CommandFailed
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators.generated_record import GeneratedRecord
from tidemark.pipeline.sinks.batches import BY_POSITION, Part, newest, partition_of
from tidemark.pipeline.sinks.written import has_batches, last_batch_of_table
from tidemark.pipeline.spec import FileSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Committed = Callable[[str], list[GeneratedRecord]]


def numbers(records: list[GeneratedRecord]) -> list[int]:
    return sorted(json.loads(each.value or b"")["a"] for each in records)


def test_a_restored_checkpoint_is_refused_and_the_way_on_it_names_loses_nothing(
    trial: Trial, committed: Committed, cluster: ClusterAdmin
) -> None:
    trial.produce(b'{"a": 0}')
    trial.run()
    copy = trial.checkpoint.with_name("copy")
    shutil.copytree(trial.checkpoint, copy)
    trial.produce(b'{"a": 1}', b'{"a": 2}')
    trial.run()
    shutil.rmtree(trial.checkpoint)
    copy.rename(trial.checkpoint)
    trial.produce(b'{"a": 3}')
    way_on = rf"start: \{{offsets: \{{{trial.name}: \{{0: 3\}}\}}\}}"
    with pytest.raises(CommandFailed, match=rf"The checkpoint is older .* batch 1 is written.*{way_on}"):
        trial.run()
    assert numbers(committed(f"{trial.name}-out")) == [0, 1, 2]
    start = f"sources.things.start={{offsets: {{{trial.name}: {{0: 3}}}}}}"
    trial.run(start, f"checkpoint={trial.checkpoint}-new")
    assert f"the topic {trial.name}-out has batches that were written with another checkpoint" in trial.said.getvalue()
    assert numbers(committed(f"{trial.name}-out")) == [0, 1, 2, 3]


def test_a_begun_batch_is_not_written_again_where_the_record_of_batches_is_gone(
    trial: Trial, committed: Committed, cluster: ClusterAdmin
) -> None:
    """Killed after the sink's commit, and before Spark's: only that topic tells that the batch is written."""
    record = f"{trial.name}.out.batches"
    for number in (0, 1):
        trial.produce(b'{"a": %d}' % number)
        trial.run()
    commits = trial.checkpoint / "sinks" / "out" / "commits"
    (commits / "1").rename(trial.checkpoint / "kept")
    (commits / ".1.crc").unlink()
    cluster.admin.delete_topics([record])[record].result()
    with pytest.raises(CommandFailed, match=rf"sinks\.out: batch 1 was begun, and the topic '{record}'.* is gone"):
        trial.run()
    assert numbers(committed(f"{trial.name}-out")) == [0, 1]
    (trial.checkpoint / "kept").rename(commits / "1")  # no batch is begun: there is nothing to be known of the last one
    trial.produce(b'{"a": 2}')
    trial.run()
    assert numbers(committed(f"{trial.name}-out")) == [0, 1, 2]

    cluster.admin.delete_topics([f"{trial.name}-out"])[f"{trial.name}-out"].result()
    trial.produce(b'{"a": 3}')
    trial.run()
    assert numbers(committed(f"{trial.name}-out")) == [3]
    assert f"the topic {trial.name}-out was written to, is gone, and is made anew" in trial.said.getvalue()


@pytest.mark.parametrize("made_anew", [False, True])
def test_nor_is_the_first_batch_of_all(
    trial: Trial, committed: Committed, cluster: ClusterAdmin, made_anew: bool
) -> None:
    """No batch is finished by the checkpoint, so nothing but a note of ours tells that the record was there."""
    record = f"{trial.name}.out.batches"
    trial.produce(b'{"a": 0}')
    trial.run()
    commits = trial.checkpoint / "sinks" / "out" / "commits"
    shutil.rmtree(commits)
    cluster.admin.delete_topics([record])[record].result()
    if made_anew:
        cluster.create_topic(record, partitions=2)
    with pytest.raises(CommandFailed, match=rf"sinks\.out: batch 0 was begun, and the topic '{record}'.* is gone"):
        trial.run()
    assert numbers(committed(f"{trial.name}-out")) == [0]


def test_a_checkpoint_elsewhere_is_known_by_its_records_and_topics_too(
    trial: Trial, committed: Committed, cluster: ClusterAdmin, spark: SparkSession
) -> None:
    """Reached through Hadoop only, as an object store is. Restored from a copy, its next batch has the number of one
    that is written; by the number alone it would be taken for that, and its records be lost."""
    mounted = trial.checkpoint.parent / "mounted"
    mounted.mkdir()
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    conf.set(f"fs.viewfs.mounttable.{trial.name}.link./data", mounted.as_uri())
    elsewhere = f"checkpoint=viewfs://{trial.name}/data/checkpoint"
    trial.produce(b'{"a": 0}')
    trial.run(elsewhere)
    shutil.copytree(mounted / "checkpoint", mounted / "copy")
    trial.produce(b'{"a": 1}', b'{"a": 2}')
    trial.run(elsewhere)
    shutil.rmtree(mounted / "checkpoint")
    (mounted / "copy").rename(mounted / "checkpoint")
    trial.produce(b'{"a": 3}')
    with pytest.raises(CommandFailed, match=r"The checkpoint is older .* batch 1 is written"):
        trial.run(elsewhere)
    offsets = mounted / "checkpoint" / "sinks" / "out" / "offsets"
    assert [each.name for each in offsets.iterdir() if each.name.isdecimal()] == ["0"]  # it was seen before any work
    assert numbers(committed(f"{trial.name}-out")) == [0, 1, 2]

    cluster.admin.delete_topics([trial.name])[trial.name].result()
    cluster.create_topic(trial.name, partitions=1)
    trial.produce(*(b'{"a": %d}' % number for number in range(10, 14)))
    with pytest.raises(CommandFailed, match=rf"Deleted and made anew .*{trial.name}-0 below 1"):
        trial.run(elsewhere, "sinks.out.topic=other", "name=other")


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_a_table_that_is_ahead_of_its_checkpoint_or_gone_is_not_gone_on_with(
    trial: Trial, spark: SparkSession, kind: str
) -> None:
    name = f"t{trial.name[-8:]}"
    place = trial.checkpoint.parent / "table"
    if kind == "iceberg":
        place = Path(str(spark.conf.get("spark.sql.catalog.lake.warehouse"))) / "db" / name
    path = f"lake.db.{name}" if kind == "iceberg" else str(place)
    sink = [
        "steps=[{name: s, sql: SELECT a FROM things}]",
        f"sinks={{table: {{type: {kind}, from: s, path: {path}}}}}",
        "sources.things.schema={a: LONG}",
    ]
    trial.produce(b'{"a": 0}')
    trial.run(*sink)
    copy = trial.checkpoint.with_name("copy")
    shutil.copytree(trial.checkpoint, copy)
    trial.produce(b'{"a": 1}')
    trial.run(*sink)
    table = FileSink(name="table", view="s", kind=kind, path=path)
    assert has_batches(spark, table) == (kind != "parquet")
    assert not has_batches(spark, replace(table, path=f"{path}_2"))
    hidden = place.rename(place.with_name(f"{name}-hidden"))  # a disk that is not mounted, or somebody's tidying
    with pytest.raises(CommandFailed, match=rf"sinks\.table: the table {path} is gone, .* up to 1 .*\"0\": 2"):
        trial.run(*sink)
    hidden.rename(place)
    shutil.rmtree(trial.checkpoint)
    copy.rename(trial.checkpoint)
    trial.produce(b'{"a": 2}')
    with pytest.raises(CommandFailed, match=r"has batches up to 1, and the checkpoint goes only to batch 0"):
        trial.run(*sink)


def test_the_last_batch_of_a_parquet_table_is_found_wherever_spark_can_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    """By the address that an object store would have, too: not found, its batches would be taken for unwritten, and the
    next ones of the same numbers for written."""
    log = tmp_path / "table" / "_spark_metadata"
    log.mkdir(parents=True)
    for name in ("8", "9.compact", ".9.compact.crc", "10"):
        (log / name).write_text("v1\n")
    for place in (str(tmp_path), f"file://{tmp_path}"):
        sink = FileSink(name="s", view="v", kind="parquet", path=f"{place}/table")
        assert last_batch_of_table(spark, sink, query=None) == 10
        assert last_batch_of_table(spark, replace(sink, path=f"{place}/none"), query=None) is None


def test_a_topic_deleted_and_made_anew_is_no_longer_the_one_that_was_read(
    trial: Trial, cluster: ClusterAdmin, committed: Committed
) -> None:
    trial.produce(b'{"a": 0}', b'{"a": 1}')
    trial.run()
    cluster.admin.delete_topics([trial.name])[trial.name].result()
    cluster.create_topic(trial.name, partitions=1)
    trial.produce(*(b'{"a": %d}' % number for number in range(10, 14)))  # past the old position: offsets tell nothing
    with pytest.raises(CommandFailed, match=rf"Deleted and made anew .*{trial.name}-0 below 2"):
        trial.run()
    trial.run("sources.things.on_data_loss=continue")
    assert f"{trial.name}-0 below 2. Going on" in trial.said.getvalue()
    assert numbers(committed(f"{trial.name}-out")) == [0, 1, 12, 13]


def test_behind_a_table_rows_are_divided_by_their_source(
    trial: Trial, cluster: ClusterAdmin, committed: Committed
) -> None:
    names = f"{trial.name}-names"
    cluster.create_topic(names, partitions=1)
    table = f"{{type: table, topic: {names}, format: json, schema: {{name: STRING}}}}"
    joined = (
        "SELECT t.a, n.name, t._topic, t._partition, t._offset FROM things t LEFT JOIN names n "
        "ON CAST(t._key AS STRING) = CAST(n._key AS STRING)"
    )
    declared = [
        f"sources.names={table}",
        "sources.things.schema={a: LONG}",
        "sinks.out.from=j",
        "sinks.out.key=name",
        "sinks.out.writers=2",
    ]
    step = json.dumps([{"name": "j", "sql": joined}])
    trial.produce(*(b'{"a": %d}' % number for number in range(20)), key=b"k")
    trial.run(*declared, f"steps={step}")
    assert numbers(committed(f"{trial.name}-out")) == list(range(20))
    parts = [newest(cluster.settings, f"{trial.name}.out.batches", partition_of(writer)) for writer in range(2)]
    [part] = [each for each in parts if isinstance(each, Part)]  # one partition of the source: one writer
    assert part.division == BY_POSITION
    without = json.dumps([{"name": "j", "sql": joined.replace(", t._topic, t._partition, t._offset", "")}])
    with pytest.raises(
        CommandFailed, match=r"select _topic, _partition, _offset in the view 'j' too, or set 'writers: 1'"
    ):
        trial.run(*declared, f"steps={without}", f"checkpoint={trial.checkpoint}-2")


def test_lag_is_told_to_the_end_of_the_log(trial: Trial, spark: SparkSession) -> None:
    """What comes while a batch runs is behind it, whatever end the batch was planned to."""
    trial.produce(*(b'{"a": %d}' % number for number in range(6)))
    step = json.dumps([{"name": "s", "sql": "SELECT a FROM things WHERE a >= 0"}])
    runner = trial.run("sources.things.schema={a: LONG}", "sources.things.batch_records_max=2", f"steps={step}")
    assert [each.lag for each in runner.history] == [4, 2, 0]
    assert runner.metrics.lag == {"out": 0}


def test_a_batch_that_no_transaction_is_long_enough_for_is_planned_anew(spark: SparkSession, tmp_path: Path) -> None:
    """A hundred rows at sixty a second, on a broker that ends transactions after a second."""
    short = {
        "transaction_max_timeout_ms": 1000,
        "transaction_abort_timed_out_transaction_cleanup_interval_ms": 100,
        "transaction_state_log_num_partitions": 1,
        "offsets_topic_num_partitions": 1,
    }
    with tidemark.embedded(**short) as broker:  # type: ignore[arg-type]
        cluster = ClusterAdmin(broker.bootstrap, {})
        slow = Trial(spark, cluster, producing_to(cluster), tmp_path)
        slow.produce(*(b'{"a": %d}' % number for number in range(100)))
        slow.run("sinks.out.rate=60", "sources.things.batch_records_max=100")
        assert numbers(committed_of(cluster, f"{slow.name}-out")) == list(range(100))
        assert re.search(r"batch 0 is planned anew, with \d+ records at most", slow.said.getvalue())
