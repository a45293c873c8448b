"""librdkafka over its quotas: it is told how long it was held back, and gets all through, in order and once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, ThrottleEvent
from harness.broker_process import BrokerProcess
from harness.confluent_client import create_topic

from tidemark.protocol.messages.alter_client_quotas import (
    AlterationData,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidemark.wire_client import BrokerConnections

RATE = 400_000
COUNT, SIZE = 1500, 1000


def set_quotas(bootstrap: str, client_id: str, **quotas: float | None) -> None:
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    entry = AlterationData(entity=[EntityData(entity_type="client-id", entity_name=client_id)], ops=ops)
    brokers = BrokerConnections([(host, int(port))], client_id="test", timeout_s=20)
    answer = brokers.ask_any(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
    brokers.close()
    assert [each.error_code for each in answer.entries] == [0]


@pytest.fixture
def throttled(broker: BrokerProcess, topic: str) -> Iterator[str]:
    """A topic, which is also the client id that has quotas."""
    create_topic(broker.bootstrap, topic)
    set_quotas(broker.bootstrap, topic, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    yield topic
    set_quotas(broker.bootstrap, topic, producer_byte_rate=None, consumer_byte_rate=None)


def test_producer_and_consumer_are_held_to_their_rates_and_told(broker: BrokerProcess, throttled: str) -> None:
    told: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": throttled, "throttle_cb": told.append}
    producer, began, failed = Producer({**settings, "enable.idempotence": True, "batch.size": 50_000}), time.time(), []
    for number in range(COUNT):
        value = b"%d" % number + bytes(SIZE)
        producer.produce(throttled, value, on_delivery=lambda error, _message: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []
    assert time.time() - began > 0.5 * COUNT * SIZE / RATE
    assert max(each.throttle_time for each in told) > 0
    told.clear()
    consumer = Consumer(
        {**settings, "group.id": throttled, "auto.offset.reset": "earliest", "fetch.message.max.bytes": 100_000}
    )
    consumer.subscribe([throttled])
    numbers, began = [], time.time()
    while len(numbers) < COUNT:
        assert time.time() - began < 60
        for message in consumer.consume(100, 1.0):
            assert message.error() is None
            numbers.append(int(message.value().split(b"\0")[0]))
    consumer.close()
    assert numbers == list(range(COUNT))
    assert time.time() - began > 0.5 * COUNT * SIZE / RATE
    assert max(each.throttle_time for each in told) > 0
