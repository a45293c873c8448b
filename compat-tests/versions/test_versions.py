"""Clients of nine years, each unmodified and in a process of its own, through an application's first minute."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.java import JAVA, SHORT_LIVED

HERE = Path(__file__).parent
CLIENTS = HERE.parents[1] / ".cache" / "clients"
JAVA_VERSIONS = ["0.11.0.3", "1.1.1", "2.1.1", "2.8.2", "3.3.2", "3.4.1", "3.6.2", "3.7.2", "3.9.1", "4.1.0", "4.4.0"]
PYTHON_CLIENTS = [
    line.split()[0]
    for line in (HERE / "python-clients.txt").read_text().splitlines()
    if not line.startswith(("#", "pyspark"))
]


def run(command: list[str], path: Path | None = None) -> list[str]:
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": "" if path is None else str(path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-8000:]}"
    return done.stdout.splitlines()


@pytest.mark.parametrize("version", JAVA_VERSIONS)
def test_java_client(version: str, broker: BrokerProcess, topic: str) -> None:
    jar = CLIENTS / f"kafka-clients-{version}.jar"
    assert jar.exists(), f"{jar} is missing: run `make clients`"
    jars = [jar, *CLIENTS.glob("slf4j-*.jar")]
    quiet = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)
    command = [*JAVA, *SHORT_LIVED, *quiet, "-cp", ":".join(map(str, jars)), str(HERE / "Journey.java")]
    assert run([*command, broker.bootstrap, topic])[-1] == "read 300"


@pytest.mark.parametrize("client", PYTHON_CLIENTS)
def test_python_client(client: str, broker: BrokerProcess, topic: str) -> None:
    name, _, version = client.partition("==")
    assert (CLIENTS / client).is_dir(), f"{client} is missing: run `make clients`"
    script = HERE / f"journey_{name.replace('-', '_')}.py"
    told, read = run([sys.executable, "-W", "ignore", str(script), broker.bootstrap, topic], CLIENTS / client)[-2:]
    assert version in told
    assert read == "read 300"


def test_spark_35_with_its_own_connector(broker: BrokerProcess, topic: str) -> None:
    [client] = CLIENTS.glob("pyspark==3.5.*")
    jars = ",".join(map(str, (CLIENTS / "spark-3.5").glob("*.jar")))
    script = HERE / "journey_pyspark.py"
    told, read = run([sys.executable, str(script), broker.bootstrap, topic, jars], client)[-2:]
    assert told.startswith("version 3.5.")
    assert read == "read 300"
