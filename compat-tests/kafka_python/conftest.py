from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from kafka import KafkaAdminClient

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield client
    client.close()


@pytest.fixture
def make_topic(admin: KafkaAdminClient, topic: str) -> Callable[..., str]:
    def make(*, partitions: int = 1, **configs: str) -> str:
        options = {
            "num_partitions": partitions,
            "replication_factor": 1,
            "configs": {key.replace("_", "."): value for key, value in configs.items()},
        }
        admin.create_topics({topic: options}, wait_for_metadata=True)
        return topic

    return make


@pytest.fixture
def made(make_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return make_topic()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python drops the sockets of failed connection attempts unclosed; that is not ours to fail on."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


def pytest_runtest_logfinish() -> None:
    """Those sockets are found after the test that left them, not in one of another client's.

    Not in a fixture: until the test is over, its captured log records still hold on to them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
