"""What a running pipeline meets: lost records, changed and inferred schemas, malformed records, damaged checkpoints."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.cluster import Cluster
from pipeline.failure import PipelineFailed
from pipeline.generators.made import Made
from pipeline.runner import Runner
from pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Produce = Callable[[Iterable[Made]], None]
YAML = """\
name: {name}
sources:
  things: {{topic: {name}, format: json}}
sinks:
  out: {{from: things, topic: {name}-out}}
"""


class Trial:
    """One small pipeline with a topic and a checkpoint of its own."""

    def __init__(self, spark: SparkSession, cluster: Cluster, produce: Produce, directory: Path) -> None:
        self.name = f"trial-{uuid.uuid4().hex[:8]}"
        self.said = io.StringIO()
        self.checkpoint = directory / "checkpoint"
        self._spark, self._cluster, self._produce = spark, cluster, produce
        self._file = directory / "trial.yaml"
        self._file.write_text(YAML.format(name=self.name))
        cluster.create_topic(self.name, partitions=1)

    def produce(self, *values: bytes) -> None:
        self._produce(Made(topic=self.name, key=None, value=value) for value in values)

    def run(self, *overrides: str) -> Runner:
        ours = [f"bootstrap={self._cluster.bootstrap}", f"checkpoint={self.checkpoint}"]
        pipeline = load(self._file, overrides=[*ours, *overrides])
        runner = Runner(self._spark, pipeline, once=True, out=self.said)
        runner.run()
        return runner

    def delete_before(self, offset: int) -> None:
        from confluent_kafka import TopicPartition

        place = TopicPartition(self.name, 0, offset)
        self._cluster.admin.delete_records([place])[place].result()


@pytest.fixture
def trial(spark: SparkSession, cluster: Cluster, produce: Produce, tmp_path: Path) -> Trial:
    return Trial(spark, cluster, produce, tmp_path)


def test_a_schema_is_inferred_and_kept_and_a_change_refused(
    trial: Trial, committed: Callable[[str], list[Made]]
) -> None:
    trial.produce(b'{"a": 1, "b": "x"}', b"{broken", b'{"a": 2, "b": "y"}')
    runner = trial.run()
    found = [json.loads(each.value or b"") for each in committed(f"{trial.name}-out")]
    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert sum(runner.metrics.malformed.values()) == 1
    with pytest.raises(PipelineFailed, match="the column 'b' is gone"):
        trial.run("sources.things.schema={a: LONG}")


def test_lost_records_are_named_and_gone_past_if_so_configured(
    trial: Trial, committed: Callable[[str], list[Made]]
) -> None:
    trial.produce(*(b'{"a": %d}' % n for n in range(4)))
    trial.run()
    trial.produce(*(b'{"a": %d}' % n for n in range(4, 10)))
    trial.delete_before(8)
    gone = rf"Records are gone that were not read yet: {trial.name}-0 offsets 4 to 7 \(4 records\)"
    with pytest.raises(PipelineFailed, match=gone):
        trial.run()
    runner = trial.run("sources.things.on_data_loss=continue")
    assert runner.metrics.lost_records == 4
    assert [json.loads(m.value or b"")["a"] for m in committed(f"{trial.name}-out")] == [0, 1, 2, 3, 8, 9]


def test_a_malformed_record_can_stop_a_pipeline_with_its_place(trial: Trial) -> None:
    trial.produce(b'{"a": 1}', b"{broken")
    with pytest.raises(PipelineFailed, match=rf"Malformed record in {trial.name}-0 at offset 1; set 'on_malformed"):
        trial.run("sources.things.on_malformed=fail")


def test_a_damaged_checkpoint_is_named(trial: Trial) -> None:
    trial.produce(b'{"a": 1}')
    trial.run()
    (trial.checkpoint / "sinks" / "out" / "offsets" / "0").write_text("")
    with pytest.raises(PipelineFailed, match=r"The checkpoint is damaged: .*offsets/0"):
        trial.run()


def test_a_mistake_in_sql_names_the_step(trial: Trial) -> None:
    trial.produce(b'{"a": 1}')
    with pytest.raises(PipelineFailed, match=r"The step 's': \[UNRESOLVED_COLUMN"):
        trial.run("steps=[{name: s, sql: SELECT nothing FROM things}]", "sinks.out.from=s")
