"""Fixtures for projects that test against Kafka. Installing Tidemark is enough: pytest finds them by itself.

`tidemark_broker` is one broker for the whole test run; `tidemark_topic` a fresh topic for each test that asks for it.
Nothing is imported or started before a test asks for it. If the broker fails, the test that uses it at the time fails
with the reason, and so does every test that would use it afterwards.

Cases of pipelines (`shop.cases.yaml` beside `shop.yaml`, docs/pipeline.md) are tests, too.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tidemark._embedded import EmbeddedBroker
    from tidemark.pipeline.testing.pytest_cases import CasesFile

_FAILURE_IS_REPORTED: Final = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def tidemark_settings() -> dict[str, Any]:
    """Settings of the broker: override this fixture to change them, with Kafka's names and underscores for dots."""
    return {}


@pytest.fixture(scope="session")
def tidemark_broker(tidemark_settings: dict[str, Any], pytestconfig: pytest.Config) -> Iterator[EmbeddedBroker]:
    """A real broker; give `tidemark_broker.bootstrap` to any Kafka client, or `client_settings` where it is secured."""
    from tidemark._embedded import BrokerFailed, embedded

    try:
        with embedded(**tidemark_settings) as broker:
            yield broker
    except BrokerFailed:
        if _FAILURE_IS_REPORTED not in pytestconfig.stash:
            raise


@pytest.fixture
def tidemark_topic(tidemark_broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, deleted after the test."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    _report_failure(request.node)
    name = f"{re.sub(r'[^a-zA-Z0-9._-]', '-', request.node.name)[:180]}-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(tidemark_broker.client_settings)
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(timeout=10)
    yield name
    _report_failure(request.node)
    try:
        admin.delete_topics([name])[name].result(timeout=10)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:  # the test may have deleted it itself
            raise


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> CasesFile | None:
    if ".cases." not in file_path.name:
        return None
    from tidemark.pipeline.testing.pytest_cases import collected

    return collected(file_path, parent)


@pytest.hookimpl(trylast=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _report_failure(item)


@pytest.hookimpl(trylast=True)  # after the fixtures are torn down, which must happen in any case
def pytest_runtest_teardown(item: pytest.Item) -> None:
    if _FAILURE_IS_REPORTED not in item.stash:
        _report_failure(item)


def _report_failure(item: pytest.Item) -> None:
    """Fail the test if the broker that it uses has failed."""
    broker: EmbeddedBroker | None = getattr(item, "funcargs", {}).get("tidemark_broker")
    if broker is None:
        return
    try:
        broker.raise_failure()
    except Exception:
        item.stash[_FAILURE_IS_REPORTED] = item.config.stash[_FAILURE_IS_REPORTED] = True
        raise
