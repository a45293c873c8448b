"""Executors that are processes of their own, and have our modules from nowhere but the driver."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from harness.broker_process import REPOSITORY, BrokerProcess
from harness.confluent_client import consumer, create_topic, producer, read
from pipelines.pipeline_process import running

YAML = """\
name: spread
bootstrap: {bootstrap}
checkpoint: {directory}/checkpoint
sources:
  lines: {{topic: lines, format: string}}
sinks:
  copy: {{from: lines, topic: lines-copy, value: upper(value), writers: 2, partitions: 1}}
spark: {{spark.ui.enabled: "false", spark.sql.shuffle.partitions: "2"}}
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


@pytest.mark.timeout(900)
def test_executors_of_a_cluster_get_our_modules_and_jars_from_the_driver(broker: BrokerProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, "lines", partitions=2)
    sender = producer(broker.bootstrap)
    for number in range(100):
        sender.produce("lines", b"line %d" % number, partition=number % 2)
    assert sender.flush(30) == 0
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_OURS.format(repository=str(REPOSITORY)))
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    file = tmp_path / "spread.yaml"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, directory=tmp_path))
    environment = {"PYSPARK_PYTHON": str(python)}
    with running(
        file, "--once", "--master", "local-cluster[2,1,1024]", log=tmp_path / "log", environment=environment
    ) as run:
        assert run.await_end() == 0, run.said
    with consumer(broker.bootstrap, isolation_level="read_committed") as reader:
        reader.assign([TopicPartition("lines-copy", 0, OFFSET_BEGINNING)])
        found = {message.value() for message in read(reader, 100)}
    assert found == {b"LINE %d" % number for number in range(100)}
