"""A standalone Spark cluster: its executors have our modules, and the pipeline's own, from nowhere but the driver, and
one of them is killed in the middle of a transaction."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.broker_process import REPOSITORY, BrokerProcess
from harness.confluent_client import consumer, create_topic, producer
from pipelines.pipeline_process import QUICK_SPARK, running
from pipelines.standalone_spark import standalone_spark
from pipelines.transactions_seen import TopicEnds

RECORDS = 1200
# A batch of 400 at 500 a second and writer holds its transactions open for some 0.4 s: long enough to be hit.
YAML = """\
name: spread
bootstrap: {bootstrap}
sources:
  lines: {{topic: lines, format: string, batch_records_max: 400}}
steps:
  - {{name: loud, from: lines, python: own_steps:loud}}
sinks:
  copy: {{from: loud, topic: copy, key: value, value: value, writers: 2, rate: 1000}}
spark:
{quick}  spark.executor.memory: 512m
  spark.driver.host: 127.0.0.1
"""
OWN_STEPS = """\
from pyspark.sql import functions as f


def shouted(text):
    return text.upper()


def loud(rows):
    return rows.withColumn("value", f.udf(shouted)("value"))
"""
# What the executors' Python must not find by itself: the tests' environment has our packages installed.
WITHOUT_OURS = """\
import sys
sys.path[:] = [path for path in sys.path if path != {repository!r}]
sys.path_importer_cache.clear()
"""


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return new_broker({"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"})


def python_without_ours(directory: Path) -> Path:
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(WITHOUT_OURS.format(repository=str(REPOSITORY)))
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{directory}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python


def copied(bootstrap: str) -> list[bytes]:
    found: list[bytes] = []
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        for partition in range(2):
            reader.assign([TopicPartition("copy", partition, OFFSET_BEGINNING)])
            while (message := reader.poll(30)) is not None and not message.error():
                found.append(message.value() or b"")
    return sorted(found)


@pytest.mark.timeout(900)
def test_a_standalone_cluster_writes_each_row_once_though_an_executor_is_killed(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    for topic in ("lines", "copy"):
        create_topic(broker.bootstrap, topic, partitions=2)
    sender = producer(broker.bootstrap)
    for number in range(RECORDS):
        sender.produce("lines", b"line %d" % number, partition=number % 2)
    assert sender.flush(30) == 0
    file = tmp_path / "spread.yaml"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, quick=QUICK_SPARK))
    (tmp_path / "own_steps.py").write_text(OWN_STEPS)
    environment = {"PYSPARK_PYTHON": str(python_without_ours(tmp_path / "bin")), "SPARK_LOCAL_IP": "127.0.0.1"}
    with (
        standalone_spark(tmp_path / "spark", workers=2) as cluster,
        consumer(broker.bootstrap, isolation_level="read_committed") as committed,
        consumer(broker.bootstrap, isolation_level="read_uncommitted") as everything,
        running(file, "--once", "--master", cluster.master, log=tmp_path / "log", environment=environment) as run,
    ):
        run.await_batches("copy", 1)
        TopicEnds(committed, everything, partitions=2).await_open_transaction("copy")
        cluster.executors()[0].kill()
        assert run.await_end() == 0, f"{run.said}\n{cluster.said()}"
    assert copied(broker.bootstrap) == sorted(b"LINE %d" % number for number in range(RECORDS))
