"""Fixtures of all real-client suites: a broker per folder, fresh topic names, brokers of one's own to restart.

`pytest compat-tests` drives Tidemark; `pytest compat-tests --broker=kafka` (or COMPAT_BROKER=kafka) drives Apache Kafka
with the same cases, which is how a case is shown to ask for what Kafka really does.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from harness.broker_log import check_log
from harness.broker_process import KINDS, BrokerProcess

# kafka-python reads its schemas through a deprecated call while it is imported. Warnings are errors here, so it is
# imported once under a lenient filter rather than having the filter weakened for everyone.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka")
    for name in ("admin", "consumer", "metadata", "producer"):
        importlib.import_module(f"kafka.protocol.{name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--broker",
        choices=sorted(KINDS),
        default=os.environ.get("COMPAT_BROKER", "tidemark"),
        help="what compat-tests drive: tidemark, or kafka as the control",
    )


@pytest.fixture(scope="session")
def broker_kind(request: pytest.FixtureRequest) -> str:
    return str(request.config.getoption("--broker"))


@pytest.fixture(scope="session")
def is_control(broker_kind: str) -> bool:
    return broker_kind == "kafka"


BrokerMaker = Callable[..., BrokerProcess]


def _makes_brokers(kind: str, directories: Callable[[], Path]) -> Iterator[BrokerMaker]:
    made: list[BrokerProcess] = []

    def make(settings: Mapping[str, str] | None = None) -> BrokerProcess:
        broker = KINDS[kind](directories(), settings)
        made.append(broker)
        broker.start()
        return broker

    yield make
    for broker in made:
        broker.close()
    for broker in made:
        check_log(broker)


@pytest.fixture(scope="session")
def session_brokers(broker_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerMaker]:
    """Brokers that live as long as the session: each client folder asks for one."""
    yield from _makes_brokers(broker_kind, lambda: tmp_path_factory.mktemp("broker"))


@pytest.fixture
def new_broker(broker_kind: str, tmp_path: Path) -> Iterator[BrokerMaker]:
    """A broker of the test's own, for cases that stop, kill or configure it."""
    numbers = itertools.count()

    def directory() -> Path:
        path = tmp_path / f"broker-{next(numbers)}"
        path.mkdir()
        return path

    yield from _makes_brokers(broker_kind, directory)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name no other test uses; nothing is created under it."""
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{stem}-{uuid.uuid4().hex[:8]}"
