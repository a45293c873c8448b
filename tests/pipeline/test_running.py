"""What a running pipeline meets: lost records, changed and inferred schemas, malformed records, damaged checkpoints."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pytest

from tidemark.failure import CommandFailed
from tidemark.pipeline.balance import plan_reads
from tidemark.pipeline.cluster import ClusterAdmin
from tidemark.pipeline.generators.generated_record import GeneratedRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import Trial

Committed = Callable[[str], list[GeneratedRecord]]


def test_a_schema_is_inferred_and_kept_and_a_change_refused(trial: Trial, committed: Committed) -> None:
    trial.produce(b'{"a": 1, "b": "x"}', b"{broken", b'{"a": 2, "b": "y"}')
    runner = trial.run()
    found = [json.loads(each.value or b"") for each in committed(f"{trial.name}-out")]
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert sum(runner.metrics.malformed.values()) == 1
    with pytest.raises(CommandFailed, match="the column 'b' is gone"):
        trial.run("sources.things.schema={a: LONG}")


def test_lost_records_are_named_and_gone_past_if_so_configured(trial: Trial, committed: Committed) -> None:
    trial.produce(*(b'{"a": %d}' % n for n in range(4)))
    trial.run()
    trial.produce(*(b'{"a": %d}' % n for n in range(4, 10)))
    trial.delete_before(8)
    gone = rf"Records are gone that were not read yet: {trial.name}-0 offsets 4 to 7 \(4 records\)"
    with pytest.raises(CommandFailed, match=gone):
        trial.run()
    runner = trial.run("sources.things.on_data_loss=continue")
    assert runner.metrics.lost_records == 4
    assert [json.loads(m.value or b"")["a"] for m in committed(f"{trial.name}-out")] == [0, 1, 2, 3, 8, 9]


def test_a_malformed_record_can_stop_a_pipeline_with_its_place(trial: Trial) -> None:
    trial.produce(b'{"a": 1}', b"{broken")
    with pytest.raises(CommandFailed, match=rf"Malformed record in {trial.name}-0 at offset 1; set 'on_malformed"):
        trial.run("sources.things.on_malformed=fail")


def test_a_damaged_checkpoint_is_named(trial: Trial) -> None:
    trial.produce(b'{"a": 1}')
    trial.run()
    (trial.checkpoint / "sinks" / "out" / "offsets" / "0").write_text("")
    with pytest.raises(CommandFailed, match=r"The checkpoint is damaged: .*offsets/0"):
        trial.run()


def test_damaged_state_is_told_with_what_to_do(trial: Trial) -> None:
    step = "steps=[{name: s, from: things, watermark: {column: at, delay: 1 minute}, dedupe: {keys: [a]}}]"
    described = [step, "sources.things.schema={a: LONG, at: TIMESTAMP}", "sinks.out.from=s"]
    trial.produce(b'{"a": 1, "at": "2030-01-31T12:00:00Z"}')
    trial.run(*described)
    for file in (trial.checkpoint / "sinks" / "out" / "state" / "0").rglob("*.delta"):
        file.write_bytes(b"damaged")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    trial.produce(b'{"a": 2, "at": "2030-01-31T12:00:00Z"}')
    with pytest.raises(CommandFailed, match=r"The checkpoint is damaged: .*state.*; or delete it"):
        trial.run(*described)


def test_a_mistake_in_sql_names_the_step(trial: Trial) -> None:
    trial.produce(b'{"a": 1}')
    with pytest.raises(CommandFailed, match=r"The step 's': \[UNRESOLVED_COLUMN"):
        trial.run("steps=[{name: s, sql: SELECT nothing FROM things}]", "sinks.out.from=s")


def test_the_position_is_a_groups_that_kafkas_tools_see(trial: Trial, bootstrap: str) -> None:
    trial.produce(b'{"a": 1}', b'{"a": 2}', b'{"a": 3}')
    trial.run()
    trial.produce(b'{"a": 4}')
    command = [
        sys.executable,
        "-m",
        "tidemark.cli.main",
        "lag",
        "-b",
        bootstrap,
        "-g",
        f"pipeline-{trial.name}",
        "--json",
    ]
    [told] = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert (told["topic"], told["partition"], told["current_offset"], told["lag"]) == (trial.name, 0, 3, 1)


def test_holes_that_transactions_leave_are_no_loss(trial: Trial, cluster: ClusterAdmin, committed: Committed) -> None:
    from confluent_kafka import Producer

    sender = Producer({**cluster.settings, "transactional.id": trial.name})
    sender.init_transactions()
    for number in range(6):
        sender.begin_transaction()
        sender.produce(trial.name, b'{"a": %d}' % number)
        sender.flush()
        if number % 2:
            sender.abort_transaction()
        else:
            sender.commit_transaction()
        if number in (3, 5):  # the log ends with an aborted record and its marker: no row, but no loss either
            runner = trial.run()
            assert runner.metrics.lost_records == 0
    assert [json.loads(each.value or b"")["a"] for each in committed(f"{trial.name}-out")] == [0, 2, 4]
    assert "gone" not in trial.said.getvalue()


def test_a_partition_with_most_of_the_backlog_is_read_by_several_tasks(
    spark: SparkSession, cluster: ClusterAdmin, produce: Callable[[Iterable[GeneratedRecord]], None]
) -> None:
    cluster.create_topic("skewed", partitions=2)
    produce(GeneratedRecord(topic="skewed", key=b"one key", value=b"%d" % number) for number in range(60_000))
    ranges = cluster.ranges([("skewed", 0), ("skewed", 1)])
    plan = plan_reads({each: high - low for each, (low, high) in ranges.items()}, cores=2)
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "skewed", **plan.options()}
    rows = spark.read.format("kafka").options(**options).load().selectExpr("spark_partition_id() AS task")
    by_task = [row["count"] for row in rows.groupBy("task").count().collect()]
    assert sum(by_task) == 60_000
    assert max(by_task) <= 20_000


def test_unknown_fields_are_counted_and_named_and_tombstones_marked(trial: Trial, committed: Committed) -> None:
    trial.produce(b'{"a": 1}', b'{"a": 2, "renamed": 3}', None)
    step = json.dumps([{"name": "s", "sql": "SELECT a, _tombstone AS gone FROM things"}])
    runner = trial.run("sources.things.schema={a: LONG}", f"steps={step}", "sinks.out.from=s")
    assert "1 with unknown fields, such as 'renamed'" in trial.said.getvalue()
    assert 'unknown_fields_total{pipeline="' + trial.name in runner.metrics.text()
    found = [json.loads(each.value or b"") for each in committed(f"{trial.name}-out")]
    assert found == [{"a": 1, "gone": False}, {"a": 2, "gone": False}, {"gone": True}]


def test_a_malformed_record_of_a_table_can_stop_a_pipeline(trial: Trial, cluster: ClusterAdmin) -> None:
    names = f"{trial.name}-names"
    cluster.create_topic(names, partitions=1)
    trial.produce(b'{"a": 1}')
    trial.produce_to(names, b"{broken", key=b"k")
    table = f"{{type: table, topic: {names}, format: json, schema: {{name: STRING}}, on_malformed: fail}}"
    step = json.dumps([{"name": "s", "sql": "SELECT a, name FROM things CROSS JOIN names"}])
    with pytest.raises(CommandFailed, match=rf"Malformed record in {names}-0 at offset 0"):
        trial.run(f"sources.names={table}", "sources.things.schema={a: LONG}", f"steps={step}", "sinks.out.from=s")


def test_rows_that_break_rules_are_counted_and_too_many_stop_the_pipeline(trial: Trial, committed: Committed) -> None:
    step = [{"name": "s", "from": "things", "rules": {"small": "a < 3"}, "thresholds": {"warn": "10%", "stop": "60%"}}]
    declared = ("sources.things.schema={a: LONG}", f"steps={json.dumps(step)}", "sinks.out.from=s")
    trial.produce(*(b'{"a": %d}' % number for number in range(4)))
    runner = trial.run(*declared)
    assert "1 of 4 rows (25.0%) break rules; the limit is 10.0%" in trial.said.getvalue()
    assert 'step="s"} 1' in runner.metrics.text()
    trial.produce(b'{"a": 7}', b'{"a": 8}')
    with pytest.raises(
        CommandFailed, match=r"The step 's', batch 1 of out: 2 of 2 rows .* the next run goes on after it"
    ):
        trial.run(*declared)
    trial.run(*declared)
    assert [json.loads(each.value or b"")["a"] for each in committed(f"{trial.name}-out")] == [0, 1, 2]
