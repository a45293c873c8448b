"""Transactions with kafka-python: commit, abort, isolation, fencing, offsets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.broker_process import BrokerProcess
from harness.kafka_python_client import SECONDS_MAX, consumer, produce_all, producer, read
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata


@contextmanager
def transactional(broker: BrokerProcess, name: str | None = None) -> Iterator[KafkaProducer]:
    with producer(broker.bootstrap, transactional_id=name or f"t-{uuid.uuid4().hex[:8]}") as sender:
        sender.init_transactions()
        yield sender


def write(sender: KafkaProducer, topic: str, *values: bytes, commit: bool) -> None:
    sender.begin_transaction()
    for value in values:
        sender.send(topic, value, partition=0).get(SECONDS_MAX)
    if commit:
        sender.commit_transaction()
    else:
        sender.abort_transaction()


def seen(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[bytes]:
    with consumer(broker.bootstrap, isolation_level=isolation) as reader:
        target = TopicPartition(topic, 0)
        reader.assign([target])
        reader.seek(target, 0)
        records = read(reader, count)
        assert not reader.poll(timeout_ms=300)
        return [record.value for record in records]


def test_committed_records_are_seen_and_aborted_ones_are_not(broker: BrokerProcess, made: str) -> None:
    with transactional(broker) as sender:
        write(sender, made, b"1", b"2", commit=True)
        write(sender, made, b"3", commit=False)
        write(sender, made, b"4", commit=True)
    assert seen(broker, made, 3, "read_committed") == [b"1", b"2", b"4"]
    assert seen(broker, made, 4, "read_uncommitted") == [b"1", b"2", b"3", b"4"]


def test_a_second_producer_with_the_same_id_fences_the_first(broker: BrokerProcess, made: str) -> None:
    name = f"fence-{uuid.uuid4().hex[:8]}"
    with transactional(broker, name) as first:
        first.begin_transaction()
        first.send(made, b"lost", partition=0).get(SECONDS_MAX)
        with transactional(broker, name) as second:
            with pytest.raises(KafkaError):
                first.commit_transaction()
            write(second, made, b"kept", commit=True)
    assert seen(broker, made, 1, "read_committed") == [b"kept"]


def test_offsets_move_with_the_transaction(broker: BrokerProcess, made: str) -> None:
    produce_all(broker.bootstrap, made, [b"%d" % each for each in range(10)])
    group = f"g-{uuid.uuid4().hex[:8]}"
    target = TopicPartition(made, 0)
    settings: dict[str, Any] = {"group_id": group, "enable_auto_commit": False}
    reader = KafkaConsumer(bootstrap_servers=broker.bootstrap, **settings)
    reader.assign([target])
    with transactional(broker) as sender:
        for offset, commit in ((4, True), (8, False)):
            sender.begin_transaction()
            sender.send_offsets_to_transaction({target: OffsetAndMetadata(offset, "", -1)}, group)
            if commit:
                sender.commit_transaction()
            else:
                sender.abort_transaction()
            assert reader.committed(target) == 4
    reader.close()
