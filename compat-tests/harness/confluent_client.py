"""librdkafka through confluent-kafka, as the suites use it: no groups, explicit partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.waiting import eventually

SECONDS_MAX = 30


def create_topic(bootstrap: str, topic: str, *, partitions: int = 1, **configs: str) -> None:
    """Returns when the topic is led: Apache Kafka answers before every part of it knows of the topic."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(SECONDS_MAX)
    eventually(lambda: len(admin.list_topics(topic, timeout=SECONDS_MAX).topics[topic].partitions) == partitions)


class Delivered:
    """Collects delivery reports: (partition, offset) of what was acknowledged, errors of what was not."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, int, bytes | None]] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append((message.partition(), message.offset(), message.value()))
        else:
            self.errors.append(error)


def producer(bootstrap: str, **settings: Any) -> Producer:
    options = {key.replace("_", "."): value for key, value in settings.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **options})


def produce_all(
    bootstrap: str, topic: str, values: list[bytes | None], *, partition: int = 0, **settings: Any
) -> Delivered:
    """Sends and waits for every report."""
    delivered = Delivered()
    sender = producer(bootstrap, **settings)
    for value in values:
        send_patiently(sender, topic, value, partition=partition, on_delivery=delivered)
    assert sender.flush(SECONDS_MAX) == 0
    return delivered


def send_patiently(sender: Producer, topic: str, value: bytes | None, **options: Any) -> None:
    """A full queue is waited out, as the client's documentation asks of its users."""
    while True:
        try:
            return sender.produce(topic, value, **options)
        except BufferError:
            sender.poll(0.1)


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    options = {key.replace("_", "."): value for key, value in settings.items()}
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            # A group is demanded by the constructor; nothing ever joins or commits to it.
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 100,
            **options,
        }
    )
    try:
        yield reader
    finally:
        reader.close()


def read(reader: Consumer, count: int, *, seconds_max: float = SECONDS_MAX) -> list[Message]:
    """Exactly `count` messages, or an assertion error at the deadline."""
    messages: list[Message] = []
    deadline = time.monotonic() + seconds_max
    while len(messages) < count:
        for message in reader.consume(min(count - len(messages), 10_000), timeout=0.2):
            if error := message.error():
                raise KafkaException(error)
            messages.append(message)
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages in {seconds_max} s"
    return messages


def read_from(
    bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = OFFSET_BEGINNING
) -> list[Message]:
    with consumer(bootstrap) as reader:
        reader.assign([TopicPartition(topic, partition, offset)])
        return read(reader, count)


def read_everything(bootstrap: str, topic: str, *, partition: int = 0) -> list[Message]:
    """From the first offset to the high watermark."""
    with consumer(bootstrap) as reader:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=SECONDS_MAX)
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        return read(reader, high - low)
