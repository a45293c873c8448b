from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def make_topic(broker: BrokerProcess, topic: str) -> Callable[..., str]:
    def make(*, partitions: int = 1, **configs: str) -> str:
        create_topic(broker.bootstrap, topic, partitions=partitions, **configs)
        return topic

    return make


@pytest.fixture
def made(make_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return make_topic()
