"""The embedded broker, as a project that tests against Kafka uses it."""

from __future__ import annotations

import asyncio
import errno
import socket
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

import tidemark
from tidemark.broker.config import ConfigError
from tidemark.raft import FileStorage


def produce(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=10)
    finally:
        consumer.close()
    return [message.value() for message in messages]  # type: ignore[misc]


def test_what_is_produced_is_consumed() -> None:
    with tidemark.embedded() as broker:
        produce(broker.bootstrap, "greetings", b"hello", b"world")
        assert consume(broker.bootstrap, "greetings", 2) == [b"hello", b"world"]


def test_nothing_is_left_behind() -> None:
    threads = set(threading.enumerate())
    with tidemark.embedded() as broker:
        produce(broker.bootstrap, "t", b"x")
        assert (broker.data_directory / "t-0").is_dir()
    assert not broker.data_directory.exists()
    assert {thread for thread in threading.enumerate() if thread.name.startswith(("tidemark", "sync"))} <= threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), timeout=1)


def test_several_run_side_by_side() -> None:
    with tidemark.embedded() as one, tidemark.embedded() as other:
        assert one.port != other.port
        produce(one.bootstrap, "t", b"one")
        produce(other.bootstrap, "t", b"other")
        assert consume(one.bootstrap, "t", 1) == [b"one"]
        assert consume(other.bootstrap, "t", 1) == [b"other"]


def test_a_given_directory_is_kept_and_reopened(tmp_path: Path) -> None:
    for value in (b"first", b"second"):
        with tidemark.embedded(tmp_path) as broker:
            produce(broker.bootstrap, "kept", value)
    with tidemark.embedded(tmp_path) as broker:
        assert consume(broker.bootstrap, "kept", 2) == [b"first", b"second"]


def test_settings_are_kafkas_with_underscores() -> None:
    with tidemark.embedded(num_partitions=3) as broker:
        produce(broker.bootstrap, "t", b"x")
        assert sorted(path.name for path in broker.data_directory.glob("t-*")) == ["t-0", "t-1", "t-2"]


def test_a_wrong_setting_is_refused_before_anything_starts() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"), tidemark.embedded(num_partitions="many"):
        pass


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(OSError, match="file"), tidemark.embedded(tmp_path / "file"):
        pass


def test_an_error_in_the_block_stops_the_broker() -> None:
    class MyError(Exception):
        pass

    with pytest.raises(MyError), tidemark.embedded() as broker:
        raise MyError
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((broker.host, broker.port), timeout=1)


async def test_the_async_variant_serves_async_clients() -> None:
    async with tidemark.embedded_async() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            await producer.send_and_wait("t", b"hello")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition("t", 0)])
            await consumer.seek_to_beginning()
            record = await asyncio.wait_for(consumer.getone(), 10)
        finally:
            await consumer.stop()
        assert record.value == b"hello"


def test_brokers_on_several_threads_keep_their_settings_apart() -> None:
    """Each starts, takes topics and answers at the same time as the others: nothing of one may show in another."""
    sizes = [1 << 20, 2 << 20, 3 << 20, 4 << 20]
    problems: list[str] = []

    def check(size: int) -> None:
        with tidemark.embedded(
            log_segment_bytes=size, message_max_bytes=size // 2, num_partitions=size >> 20
        ) as broker:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for round_ in range(10):
                name = f"t{round_}"
                wait([admin.create_topics([NewTopic(name)])[name]])
                wanted = ConfigResource(ResourceType.TOPIC, name)
                configs = admin.describe_configs([wanted])[wanted].result(10)
                seen = (configs["segment.bytes"].value, configs["max.message.bytes"].value)
                if seen != (str(size), str(size // 2)):
                    problems.append(f"{name} of the broker with {size}: {seen}")
                produce(broker.bootstrap, name, b"x" * 100)
                partitions = len(admin.list_topics(name, timeout=10).topics[name].partitions)
                if partitions != size >> 20:
                    problems.append(f"{name} of the broker with {size}: {partitions} partitions")

    with ThreadPoolExecutor(len(sizes)) as threads:
        for done in [threads.submit(check, size) for size in sizes]:
            done.result(60)
    assert problems == []


def test_a_broker_that_fails_fails_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def save(self: FileStorage, effects: object) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    def lose_the_disk() -> None:
        with tidemark.embedded() as broker:
            monkeypatch.setattr(FileStorage, "save", save)
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            with pytest.raises(KafkaException):
                admin.create_topics([NewTopic("t")], request_timeout=2)["t"].result(timeout=10)

    with pytest.raises(tidemark.BrokerFailed, match="the disk is gone") as raised:
        lose_the_disk()
    assert isinstance(raised.value.__cause__, OSError)


def test_the_package_says_how_it_is_used() -> None:
    assert tidemark.__doc__ is not None
    assert "with tidemark.embedded() as broker:" in tidemark.__doc__
