from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from harness.broker_process import BrokerProcess
from harness.topic import Topic, TopicMaker
from harness.transactions import Identity, init, new_identity
from harness.waiting import eventually
from harness.wire import Wire


def has_leader(wire: Wire, name: str, partition: int) -> bool:
    asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
    answer = wire.call(
        "ListOffsets", 8, replica_id=-1, isolation_level=0, topics=[{"name": name, "partitions": [asked]}]
    )
    return bool(answer.topics[0].partitions[0].error_code == 0)


@pytest.fixture(scope="session")
def broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers({"auto.create.topics.enable": "true", "group.initial.rebalance.delay.ms": "0"})


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.host, broker.port) as connection:
        yield connection


@pytest.fixture
def connect(broker: BrokerProcess) -> Iterator[Callable[..., Wire]]:
    """Further connections, closed when the test ends."""
    made: list[Wire] = []

    def open_one(**options: int) -> Wire:
        made.append(Wire(broker.host, broker.port, **options))
        return made[-1]

    yield open_one
    for connection in made:
        connection.close()


@pytest.fixture
def make_topic(wire: Wire) -> TopicMaker:
    def make(*, partitions: int = 1, name: str | None = None, **configs: str) -> Topic:
        name = name or f"wire-{uuid.uuid4().hex[:12]}"
        answer = wire.call(
            "CreateTopics",
            7,
            topics=[
                {
                    "name": name,
                    "num_partitions": partitions,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
                }
            ],
            timeout_ms=10_000,
            validate_only=False,
        )
        (created,) = answer.topics
        assert created.error_code == 0, created
        # Apache Kafka answers a moment before the partition's leader is in place.
        for partition in range(partitions):
            eventually(lambda partition=partition: has_leader(wire, name, partition), what=f"{name}-{partition} is led")
        return Topic(name=name, id=created.topic_id)

    return make


@pytest.fixture
def made(make_topic: TopicMaker) -> Topic:
    """One topic of one partition."""
    return make_topic()


@pytest.fixture
def producer(wire: Wire) -> Identity:
    """A transactional one, at epoch 1, so that there is an older one."""
    first = new_identity(wire)
    answer = init(wire, first.transactional_id)
    assert (answer.error_code, answer.producer_epoch) == (0, first.epoch + 1)
    return first.but(epoch=answer.producer_epoch)
