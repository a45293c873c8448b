from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.broker_process import BrokerProcess
from harness.waiting import eventually


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def make_topic(admin: AdminClient, topic: str) -> Iterator[Callable[..., str]]:
    def make(*, partitions: int = 1, **configs: str) -> str:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new])[topic].result(20)
        # Apache Kafka answers before every part of it knows of the topic.
        eventually(lambda: len(admin.list_topics(topic, timeout=20).topics[topic].partitions) == partitions)
        return topic

    yield make


@pytest.fixture
def made(make_topic: Callable[..., str]) -> str:
    """A topic of one partition."""
    return make_topic()
