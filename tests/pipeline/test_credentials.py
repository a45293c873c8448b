"""A cluster with TLS that asks who we are: the wrong password is told in a sentence, the right one reaches both
clients, ours and the connector's."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from harness.broker_process import Tidemark
from harness.sasl import broker_settings
from harness.scram_users import Users

from tidemark.pipeline.runner import Runner
from tidemark.pipeline.spec import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YAML = """\
name: known
bootstrap: {bootstrap}
checkpoint: {directory}/checkpoint
kafka: {kafka}
sources:
  lines: {{topic: lines, format: string}}
sinks:
  table: {{type: parquet, from: lines, path: "{directory}/table"}}
"""
PASSWORD = r"""se"cr\et"""  # what Java's lines have to escape


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    directory = tmp_path / "certificates"
    command = [sys.executable, "-m", "tidemark.cli.main", "certs", "make", str(directory), "--node", "node"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return directory


@pytest.fixture
def broker(tmp_path: Path, certificates: Path) -> Iterator[Tidemark]:
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(certificates / "node.pem")}
    made = Tidemark(tmp_path / "broker", {**broker_settings(protocol="SASL_SSL"), **own, "ssl.client.auth": "none"})
    made.start()
    Users(made.bootstrap, tls(certificates)).set("pipe", PASSWORD, "SCRAM-SHA-512")
    yield made
    made.close()


def tls(certificates: Path) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "ssl.ca.location": str(certificates / "ca.pem")}


def declare(directory: Path, broker: Tidemark, known: dict[str, str]) -> Path:
    file = directory / "known.yaml"
    file.write_text(YAML.format(bootstrap=broker.bootstrap, directory=directory, kafka=json.dumps(known)))
    return file


def test_a_wrong_password_is_one_sentence_and_the_right_one_opens_the_way(
    broker: Tidemark, certificates: Path, tmp_path: Path, spark: SparkSession
) -> None:
    known = {**tls(certificates), "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "pipe"}
    sender = Producer({"bootstrap.servers": broker.bootstrap, **known, "sasl.password": PASSWORD})
    for number in range(20):
        sender.produce("lines", b"line %d" % number)
    assert sender.flush(30) == 0

    wrong = declare(tmp_path, broker, {**known, "sasl.password": "guess"})
    command = [sys.executable, "-m", "tidemark.cli.main", "pipeline", "run", str(wrong)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    [line] = done.stderr.splitlines()
    assert line.startswith(f"tidemark: {broker.bootstrap} refused us: "), line
    assert "Authentication failed" in line
    assert (done.stdout, done.returncode) == ("", 1)

    right, said = declare(tmp_path, broker, {**known, "sasl.password": PASSWORD}), io.StringIO()
    Runner(spark, load(right), once=True, out=said).run()
    assert "table: 20 rows" in said.getvalue()
