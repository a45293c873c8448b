"""`tidemark pipeline`: what it refuses ends in one sentence and an exit code, before any JVM starts."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.pipeline.cluster import ClusterAdmin, java_settings

YAML = """\
name: shop
sources:
  orders: {topic: missing-topic, format: string}
sinks:
  out: {from: orders, topic: out}
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def tidemark(tmp_path: Path) -> Run:
    (tmp_path / "shop.yaml").write_text(YAML)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tidemark.cli.main", "pipeline", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)

    return run


def sentence(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith("tidemark: ")
    return line.removeprefix("tidemark: ")


def test_an_unreachable_broker_is_one_sentence(tidemark: Run) -> None:
    done = tidemark("run", "shop.yaml", "--set", "bootstrap=127.0.0.1:1")
    assert sentence(done) == "No broker is reachable at 127.0.0.1:1: connection refused."
    assert done.returncode == 3


def test_a_missing_topic_is_one_sentence(tidemark: Run, bootstrap: str) -> None:
    for command in (("run",), ("validate", "--no-spark")):
        done = tidemark(*command, "shop.yaml", "--set", f"bootstrap={bootstrap}")
        assert sentence(done) == f"sources.orders: there is no topic 'missing-topic' at {bootstrap}."
        assert done.returncode == 4


def test_a_typing_mistake_names_the_line(tidemark: Run) -> None:
    done = tidemark("run", "shop.yaml", "--set", "sinks.out.topik=x")
    assert "shop.yaml:1: unknown key 'topik' in sinks.out; did you mean 'topic'?" in sentence(done)
    assert done.returncode == 2


def test_help_is_the_pipelines_own(tidemark: Run) -> None:
    assert "usage: tidemark pipeline" in tidemark("--help").stdout
    assert "--once" in tidemark("run", "--help").stdout


def test_status_of_a_pipeline_that_never_ran(tidemark: Run, bootstrap: str) -> None:
    done = tidemark("status", "shop.yaml", "--set", f"bootstrap={bootstrap}")
    assert done.stdout.splitlines() == ["shop: does not run", "  out: no batch finished yet"]


def test_an_unknown_generator_and_a_missing_table_are_told(tidemark: Run) -> None:
    assert "There is no generator 'x'; there are archive, clickstream," in sentence(tidemark("generate", "x"))


def test_generators_produce_what_was_asked(tidemark: Run, bootstrap: str, cluster: ClusterAdmin) -> None:
    done = tidemark("generate", "replay", "--count", "50", "--rate", "100000", "-b", bootstrap)
    assert done.returncode == 0, done.stderr
    assert sum(high - low for low, high in cluster.ranges([("recorded", 0), ("recorded", 1)]).values()) >= 50


def test_settings_are_translated_for_the_java_client() -> None:
    kafka = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": "b",
    }
    java = java_settings("h:1", {**kafka, "ssl.ca.location": "/ca.pem"})
    assert java["kafka.sasl.mechanism"] == "SCRAM-SHA-512"
    assert 'ScramLoginModule required username="a" password="b";' in java["kafka.sasl.jaas.config"]
    assert (java["kafka.ssl.truststore.type"], java["kafka.ssl.truststore.location"]) == ("PEM", "/ca.pem")
    assert not any("sasl.password" in name or "sasl.username" in name for name in java)


def test_quotes_and_backslashes_of_a_password_reach_java_as_they_are() -> None:
    java = java_settings("h:1", {"sasl.username": "a", "sasl.password": '\\"x\\'})
    assert java["kafka.sasl.jaas.config"].endswith(r'username="a" password="\\\"x\\";')


def test_validate_offline_needs_neither_broker_nor_spark(tidemark: Run) -> None:
    done = tidemark("validate", "--offline", "shop.yaml", "--set", "bootstrap=127.0.0.1:1")
    assert (done.returncode, done.stdout) == (0, "shop.yaml: no mistakes found.\n")


def test_where_an_iceberg_table_is_kept_is_never_guessed(tidemark: Run) -> None:
    assert "say where it is kept, with --file PIPELINE or --warehouse" in sentence(
        tidemark("compact", "lake.db.orders")
    )
