"""A data directory that Apache Kafka wrote, taken over by Tidemark as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from harness.broker_process import ApacheKafka, Tidemark

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COUNT = 500


def fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"kept-{codec}", 2, config={"segment.bytes": "1048576"}) for codec in CODECS]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 2}
        )
        for number in range(COUNT):
            value = None if number % 100 == 99 else b"%d:" % number + bytes(2000)
            producer.produce(
                f"kept-{codec}", value, key=b"%d" % number, partition=number % 2, headers=[("n", b"%d" % number)]
            )
        assert producer.flush(30) == 0


def read(bootstrap: str, topic: str) -> list[tuple[int, int, bytes, bytes | None, list[tuple[str, bytes]]]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    messages: list[Message] = []
    while len(messages) < COUNT:
        got = consumer.consume(COUNT, timeout=10)
        assert got, f"only {len(messages)} of {COUNT} records of {topic} are there"
        messages += got
    consumer.close()
    assert not any(message.error() for message in messages)
    return sorted((m.partition(), m.offset(), m.key(), m.value(), m.headers()) for m in messages)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_topics_written_by_kafka_are_taken_over(tmp_path: Path, clean: bool) -> None:
    kafka = ApacheKafka(tmp_path / "kafka")
    kafka.start()
    fill(kafka.bootstrap)
    written = {codec: read(kafka.bootstrap, f"kept-{codec}") for codec in CODECS}
    described = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30)
    if clean:
        kafka.stop()
    else:
        kafka.kill()

    tidemark = Tidemark(tmp_path / "kafka")
    tidemark.start()
    try:
        assert {codec: read(tidemark.bootstrap, f"kept-{codec}") for codec in CODECS} == written
        assert (
            AdminClient({"bootstrap.servers": tidemark.bootstrap}).list_topics(timeout=30).cluster_id
            == described.cluster_id
        )
        producer = Producer({"bootstrap.servers": tidemark.bootstrap, "enable.idempotence": True})
        landed: list[Message] = []
        producer.produce("kept-gzip", b"next", partition=0, on_delivery=lambda _, message: landed.append(message))
        assert producer.flush(30) == 0
        assert landed[0].offset() == COUNT // 2
    finally:
        tidemark.stop()
