"""A real cluster: a master, and workers whose executors have our modules from nowhere but the driver; one is killed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.broker_process import REPOSITORY, BrokerProcess
from harness.confluent_client import consumer, create_topic, producer
from harness.waiting import eventually
from pipelines.pipeline_process import running
from pipelines.standalone_spark import settings_of_driver, standalone_spark

RECORDS = 2000
# The writers' pace keeps tasks at work on both executors; the table is kept on one of them, and lost with it.
YAML = """\
name: spread
bootstrap: {bootstrap}
sources:
  lines: {{topic: lines, format: string, batch_records_max: 200}}
  names: {{type: table, topic: names, format: string}}
steps:
  - name: joined
    sql: |
      SELECT upper(l.value) AS line, n.value AS name, l._topic, l._partition, l._offset
      FROM lines l JOIN names n ON l._partition = CAST(CAST(n._key AS STRING) AS INT)
sinks:
  copy: {{from: lines, topic: lines-copy, value: upper(value), writers: 2, rate: 600, trigger: 50ms}}
  named: {{from: joined, topic: lines-named, writers: 2, trigger: 1 second}}
spark: {spark}
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


def python_without_ours(directory: Path) -> str:
    (directory / "sitecustomize.py").write_text(WITHOUT_OURS.format(repository=str(REPOSITORY)))
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{directory}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return str(python)


def values(bootstrap: str, topic: str) -> list[bytes]:
    with consumer(bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        while (message := reader.poll(30)) is not None and not message.error():
            found.append(message.value() or b"")
    return sorted(found)


@pytest.mark.timeout(900)
def test_a_pipeline_on_a_cluster_outlives_a_worker(broker: BrokerProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, "lines", partitions=2)
    for topic in ("names", "lines-copy", "lines-named"):
        create_topic(broker.bootstrap, topic)
    sender = producer(broker.bootstrap)
    for partition in range(2):
        sender.produce("names", b"name %d" % partition, str(partition).encode())
    for number in range(RECORDS):
        sender.produce("lines", b"line %d" % number, partition=number % 2)
    assert sender.flush(30) == 0
    file = tmp_path / "spread.yaml"
    spark = {**settings_of_driver(), "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    file.write_text(YAML.format(bootstrap=broker.bootstrap, spark=json.dumps(spark)))
    environment = {"PYSPARK_PYTHON": python_without_ours(tmp_path)}
    with (
        standalone_spark(tmp_path / "spark", workers=2) as cluster,
        running(file, "--once", "--master", cluster.master, log=tmp_path / "log", environment=environment) as run,
    ):
        run.await_batches("copy", 2)
        assert cluster.executors(0)
        assert cluster.executors(1)
        cluster.kill_worker(0)
        assert run.await_end() == 0, run.said
        eventually(lambda: not cluster.executors(1), what="the executor that is left ends with its application")
    numbers = range(RECORDS)
    assert values(broker.bootstrap, "lines-copy") == sorted(b"LINE %d" % number for number in numbers)
    named = (b'{"line":"LINE %d","name":"name %d"}' % (number, number % 2) for number in numbers)
    assert values(broker.bootstrap, "lines-named") == sorted(named)
