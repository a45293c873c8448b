"""Fixtures for projects that test against Kafka. Installing Tidemark is enough: pytest finds them by itself.

`tidemark_broker` is one broker for the whole test run; `tidemark_topic` a fresh topic for each test that asks for it.
Nothing is imported or started before a test asks for it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidemark._embedded import EmbeddedBroker


@pytest.fixture(scope="session")
def tidemark_settings() -> dict[str, Any]:
    """Settings of the broker: override this fixture to change them, with Kafka's names and underscores for dots."""
    return {}


@pytest.fixture(scope="session")
def tidemark_broker(tidemark_settings: dict[str, Any]) -> Iterator[EmbeddedBroker]:
    """A real broker; give `tidemark_broker.bootstrap` to any Kafka client."""
    from tidemark._embedded import embedded

    with embedded(**tidemark_settings) as broker:
        yield broker


@pytest.fixture
def tidemark_topic(tidemark_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, deleted after the test."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"{re.sub(r'[^a-zA-Z0-9._-]', '-', request.node.name)[:180]}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": tidemark_broker.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(timeout=10)
    yield name
    admin.delete_topics([name])[name].result(timeout=10)
