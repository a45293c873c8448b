"""A pipeline as a person follows it: lines, Spark's page, metrics, status, lag, Ctrl-C, and what remains after it."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic, producer
from harness.waiting import eventually
from pipelines.pipeline_process import running

YAML = """\
name: watched
bootstrap: {bootstrap}
checkpoint: {directory}/checkpoint
metrics_port: 0
sources:
  lines: {{topic: lines, format: json, schema: {{n: LONG}}}}
sinks:
  copy: {{from: lines, topic: lines-copy, trigger: 100ms}}
spark: {{spark.sql.shuffle.partitions: "1"}}
"""


@pytest.fixture
def broker(new_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return new_broker({"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"})


def command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tidemark.cli.main", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.timeout(900)
def test_a_pipeline_can_be_followed_from_its_start_to_its_end(broker: BrokerProcess, tmp_path: Path) -> None:
    create_topic(broker.bootstrap, "lines")
    sender = producer(broker.bootstrap)
    for number in range(50):
        sender.produce("lines", b'{"n": %d}' % number if number != 7 else b"{broken")
    assert sender.flush(30) == 0
    file = tmp_path / "watched.yaml"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, directory=tmp_path))

    def lag() -> int:
        told = json.loads(command("lag", "-b", broker.bootstrap, "-g", "pipeline-watched", "--json"))
        return sum(each["lag"] for each in told)

    with running(file, log=tmp_path / "log") as run:
        line = run.await_line(r"copy  batch 0  50 rows  [\d,]+ rows/s  lag 0  [\d.]+ s  1 malformed")
        assert "Spark Jobs" in fetched(run.await_line(r"Spark UI  (http://\S+)")[1]), line
        metrics = fetched(run.await_line(r"metrics   (http://\S+)")[1])
        assert 'tidemark_pipeline_rows_total{pipeline="watched",sink="copy"} 50' in metrics
        assert 'tidemark_pipeline_malformed_total{pipeline="watched",sink="copy",source="lines"} 1' in metrics
        assert 'tidemark_pipeline_lag_records{pipeline="watched",sink="copy"} 0' in metrics
        status = command("pipeline", "status", str(file)).splitlines()
        assert status[0] == f"watched: runs, process {run.pid}"
        assert status[1].startswith("  copy: batch 0, 0 records behind")
        eventually(lambda: lag() == 0, what="the group has caught up")
        run.interrupt()
        assert run.await_end() == 0, run.said
    assert "copy: 50 rows in 1 batch, " in run.said
    assert "  1 malformed records" in run.said
    page = Path(run.await_line(r"  report: (\S+)")[1]).read_text()
    assert page.count("<polyline") == 3  # and nothing to see of lag and state
    assert page.count("0 all the time") == 2
    assert command("pipeline", "status", str(file)).startswith("watched: does not run")
    sender.produce("lines", b'{"n": 50}')
    assert sender.flush(30) == 0
    assert lag() == 1
