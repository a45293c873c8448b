from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic

Kcat = Callable[..., bytes]


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()


def run_kcat(bootstrap: str, arguments: Sequence[str], *, stdin: bytes = b"", fails: bool = False) -> bytes:
    program = shutil.which("kcat") or shutil.which("kafkacat")
    assert program, "kcat is not installed"
    done = subprocess.run(
        [program, "-b", bootstrap, *arguments], input=stdin, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode != 0) == fails, f"exit code {done.returncode}: {done.stderr.decode(errors='replace')}"
    return done.stderr if fails else done.stdout


@pytest.fixture
def kcat(broker: BrokerProcess) -> Kcat:
    def run(*arguments: str, stdin: bytes = b"", fails: bool = False) -> bytes:
        return run_kcat(broker.bootstrap, arguments, stdin=stdin, fails=fails)

    return run


@pytest.fixture
def make_topic(broker: BrokerProcess, topic: str) -> Callable[..., str]:
    """kcat cannot create topics with settings; librdkafka's admin client does it here."""

    def make(*, partitions: int = 1, **configs: str) -> str:
        create_topic(broker.bootstrap, topic, partitions=partitions, **configs)
        return topic

    return make


@pytest.fixture
def made(make_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return make_topic()
