"""A deleted topic stays deleted, even if its files come back: a power cut may undo a rename that was not synced."""

from __future__ import annotations

import shutil
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import tidemark


def produce(bootstrap: str, value: bytes) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 10_000})
    producer.produce("t", value, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(15)
    assert errors == [None]


def consume(bootstrap: str) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", 0, 0)])
    try:
        return [message.value() for message in consumer.consume(1, timeout=10)]
    finally:
        consumer.close()


def delete_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["t"])["t"].result(10)


def test_a_topic_that_was_deleted_can_be_made_anew_though_its_files_came_back(tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    with tidemark.embedded(data) as broker:
        produce(broker.bootstrap, b"old")
    shutil.copytree(data / "t-0", saved)
    with tidemark.embedded(data) as broker:
        delete_topic(broker.bootstrap)
    shutil.copytree(saved, data / "t-0")
    with tidemark.embedded(data) as broker:
        assert not (data / "t-0").exists()
        assert [path.name for path in data.glob("t-0.*-stray")]
        produce(broker.bootstrap, b"new")
        assert consume(broker.bootstrap) == [b"new"]


def test_a_topic_can_be_made_anew_where_files_of_another_stand_in_its_way(tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    with tidemark.embedded(data) as broker:
        produce(broker.bootstrap, b"old")
    shutil.copytree(data / "t-0", saved)
    with tidemark.embedded(data) as broker:
        delete_topic(broker.bootstrap)
        shutil.copytree(saved, data / "t-0")
        produce(broker.bootstrap, b"new")
        assert consume(broker.bootstrap) == [b"new"]
