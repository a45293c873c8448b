"""kafka-clients, the reference client: all cases run in one JVM, each is reported as a test of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess
from harness.java import tool_command
from harness.java_programs import SOURCES, compiled, run_cases

ACKS, CODECS = ("0", "1", "all"), ("none", "gzip", "snappy", "lz4", "zstd")
WRITTEN_OUT = re.findall(r'cases\.put\("(\w+)", this::', (SOURCES / "Cases.java").read_text())
CASES = [*WRITTEN_OUT, *(f"acks_{acks}" for acks in ACKS), *(f"codec_{codec}" for codec in CODECS)]


@pytest.fixture(scope="module")
def results(broker: BrokerProcess) -> dict[str, str]:
    return run_cases("Cases", broker.bootstrap)


@pytest.mark.parametrize("case", CASES)
def test_kafka_clients(results: dict[str, str], case: str) -> None:
    assert case in results, "the program ended before this case"
    assert results[case] == ""


def test_no_case_is_forgotten(results: dict[str, str]) -> None:
    assert set(results) == set(CASES)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_nothing_is_lost_or_doubled_over_restarts(
    new_broker: Callable[..., BrokerProcess], topic: str, clean: bool
) -> None:
    broker = new_broker()
    program = subprocess.Popen(
        tool_command("Restarts", broker.bootstrap, topic, extra_classpath=(compiled(),)),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    said: list[str] = []
    with program:
        assert program.stdout is not None
        for line in program.stdout:
            said.append(line.strip())
            if said[-1] == "RESTART":
                broker.restart(clean=clean)
    assert said == ["RESTART", "RESTART", "DONE"]
