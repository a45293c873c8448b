"""librdkafka over its quotas: it is told how long it was held back, and gets all through, in order and once; its
transactions and its group go on."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, ThrottleEvent, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import consumer, create_topic, produce_all, read
from harness.quotas import set_quotas

RATE = 400_000
COUNT, SIZE = 1500, 1000
COPIED = 200


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


def test_a_transactional_copy_goes_on_under_quotas_of_bytes_and_time(broker: BrokerProcess, topic: str) -> None:
    """No producer is fenced and no member leaves its group: neither heartbeats nor transactions starve."""
    source, target = f"{topic}-in", f"{topic}-out"
    for each in (source, target):
        create_topic(broker.bootstrap, each)
    values: list[bytes | None] = [b"%d" % number + bytes(SIZE) for number in range(COPIED)]
    produce_all(broker.bootstrap, source, values)
    quotas = {"producer_byte_rate": 100_000, "consumer_byte_rate": 100_000, "request_percentage": 1}
    set_quotas(broker.bootstrap, topic, **quotas)
    told: list[ThrottleEvent] = []
    settings = {"bootstrap.servers": broker.bootstrap, "client.id": topic, "throttle_cb": told.append}
    group = {"group.id": topic, "session.timeout.ms": 6000, "heartbeat.interval.ms": 200, "enable.auto.commit": False}
    reading = {"auto.offset.reset": "earliest", "fetch.message.max.bytes": 20_000, "max.poll.interval.ms": 6000}
    reader = Consumer({**settings, **group, **reading})
    writer = Producer({**settings, "transactional.id": topic, "transaction.timeout.ms": 10_000})
    writer.init_transactions(30)
    rebalances: list[str] = []
    reader.subscribe(
        [source],
        on_assign=lambda *_: rebalances.append("assigned"),
        on_revoke=lambda *_: rebalances.append("revoked"),
        on_lost=lambda *_: rebalances.append("lost"),
    )
    copied, began = 0, time.time()
    while copied < COPIED:
        assert time.time() - began < 60
        messages = reader.consume(100, 0.5)
        if not messages:
            continue
        writer.begin_transaction()
        for message in messages:
            assert message.error() is None
            writer.produce(target, message.value())
        writer.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), 30)
        writer.commit_transaction(30)
        copied += len(messages)
    assert time.time() - began > COPIED * SIZE / quotas["producer_byte_rate"] - 0.5 - 0.5
    assert rebalances == ["assigned"]
    assert max(each.throttle_time for each in told) > 0
    reader.close()
    set_quotas(broker.bootstrap, topic, **dict.fromkeys(quotas))
    with consumer(broker.bootstrap, isolation_level="read_committed") as check:
        check.assign([TopicPartition(target, 0, OFFSET_BEGINNING)])
        assert [each.value() for each in read(check, COPIED)] == values
