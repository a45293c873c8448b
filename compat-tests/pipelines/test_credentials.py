"""A cluster that asks who we are (Apache Kafka with SASL/PLAIN): the wrong password is told in a sentence, the right
one reaches both clients, ours and the connector's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness.broker_process import ApacheKafka
from harness.ports import free_port
from pipelines.pipeline_process import running

YAML = """\
name: known
bootstrap: {bootstrap}
checkpoint: {directory}/checkpoint
kafka: {{security.protocol: SASL_PLAINTEXT, sasl.mechanisms: PLAIN, sasl.username: pipe, sasl.password: {password}}}
sources:
  lines: {{topic: lines, format: string}}
sinks:
  table: {{type: parquet, from: lines, path: "{directory}/table"}}
spark: {{spark.ui.enabled: "false", spark.sql.shuffle.partitions: "1"}}
"""
USERS = 'username="admin" password="admin" user_admin="admin" user_pipe="secret"'
JAAS = f"org.apache.kafka.common.security.plain.PlainLoginModule required {USERS};"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ApacheKafka]:
    """Tidemark has no authentication yet; what is tested here is the pipeline."""
    port, controller = free_port(), free_port()
    made = ApacheKafka(
        tmp_path / "broker",
        {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        },
    )
    made.port = port
    made.start()
    yield made
    made.close()


def declare(directory: Path, broker: ApacheKafka, *, password: str) -> Path:
    file = directory / "known.yaml"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, directory=directory, password=password))
    return file


@pytest.mark.timeout(900)
def test_a_wrong_password_is_one_sentence_and_the_right_one_opens_the_way(broker: ApacheKafka, tmp_path: Path) -> None:
    known = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": "pipe"}
    sender = Producer({"bootstrap.servers": broker.bootstrap, **known, "sasl.password": "secret"})
    for number in range(20):
        sender.produce("lines", b"line %d" % number)
    assert sender.flush(30) == 0

    wrong = declare(tmp_path, broker, password="guess")
    command = [sys.executable, "-m", "tidemark.cli.main", "pipeline", "run", str(wrong)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    [line] = done.stderr.splitlines()
    assert line.startswith(f"tidemark: {broker.bootstrap} refused us: "), line
    assert "Authentication failed" in line
    assert (done.stdout, done.returncode) == ("", 1)

    with running(declare(tmp_path, broker, password="secret"), "--once", log=tmp_path / "log") as run:
        assert run.await_end() == 0, run.said
    assert "table: 20 rows" in run.said
