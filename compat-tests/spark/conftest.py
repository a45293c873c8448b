from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic
from pyspark.sql import SparkSession
from spark import session
from spark.tables import Topics


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets through which results come to the garbage collector. Here, and only here, that is
    no error."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    started = session.start()
    yield started
    started.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()  # what PySpark left must not be found in the tests of others


@pytest.fixture(scope="session")
def topics(spark: SparkSession, broker: BrokerProcess) -> Topics:
    """The official connector and the broker."""
    return Topics(spark=spark, bootstrap=broker.bootstrap)


@pytest.fixture
def make_topic(broker: BrokerProcess, topic: str) -> Callable[..., str]:
    def make(suffix: str = "", *, partitions: int = 1, **configs: str) -> str:
        # Times of one's choice are older than a week before long, and retention goes by them.
        create_topic(broker.bootstrap, topic + suffix, partitions=partitions, **{"retention_ms": "-1", **configs})
        return topic + suffix

    return make
