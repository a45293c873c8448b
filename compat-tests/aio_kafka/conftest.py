from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from harness.broker_process import BrokerProcess
from harness.waiting import eventually_async


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers()


@pytest.fixture
async def admin(broker: BrokerProcess) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
def make_topic(admin: AIOKafkaAdminClient, topic: str) -> Callable[..., object]:
    async def make(*, partitions: int = 1, **configs: str) -> str:
        config = {key.replace("_", "."): value for key, value in configs.items()}
        await admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=config)])

        async def is_led() -> bool:
            (told,) = await admin.describe_topics([topic])
            return len(told["partitions"]) == partitions and all(p["leader"] == 0 for p in told["partitions"])

        await eventually_async(is_led)
        return topic

    return make


@pytest.fixture
async def made(make_topic: Callable[..., object]) -> str:
    """A topic of one partition."""
    return await make_topic()  # type: ignore[misc]
