"""confluent-kafka: compacted topics. Apache Kafka passes the same cases (--broker=kafka)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, Message, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import consumer, create_topic, producer
from harness.waiting import eventually

KEYS = 50
ROUNDS = 200
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1000",
}
QUICK_CLEANER = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "500"}


def write_rounds(bootstrap: str, topic: str, *, compression: str = "none") -> dict[bytes, bytes]:
    """Every key again and again; what each had last."""
    last = {}
    sender = producer(bootstrap, linger_ms=5, compression_type=compression, batch_num_messages=20)
    for number in range(ROUNDS):
        for key in range(KEYS):
            name, value = b"key-%d" % key, b"%d-%d-" % (number, key) + b"x" * 500
            sender.produce(topic, value, key=name, partition=0)
            last[name] = value
        sender.flush(60)
    return last


def read_to_end(bootstrap: str, topic: str) -> list[Message]:
    """Everything that is left; how many records that are, only the end of the partition tells."""
    found = []
    with consumer(bootstrap, enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while (message := reader.poll(30)) is not None:
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found
            found.append(message)
    raise AssertionError("the end was not reached")


@pytest.fixture(scope="module")
def cleaning_broker(session_brokers: Callable[..., BrokerProcess]) -> BrokerProcess:
    return session_brokers(settings=QUICK_CLEANER)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_reader_from_zero_sees_the_last_value_of_every_key(
    cleaning_broker: BrokerProcess, topic: str, compression: str
) -> None:
    bootstrap = cleaning_broker.bootstrap
    create_topic(bootstrap, topic, **COMPACTED)
    before = write_rounds(bootstrap, topic, compression=compression)

    def is_cleaned() -> bool:
        sender = producer(bootstrap)
        sender.produce(topic, b"end", key=b"end", partition=0)  # rolls the segment before it, once that is old enough
        assert sender.flush(60) == 0
        found = read_to_end(bootstrap, topic)
        return len([each for each in found if each.key() != b"end"]) == KEYS

    eventually(is_cleaned, seconds_max=60)
    found = read_to_end(bootstrap, topic)
    assert {each.key(): each.value() for each in found if each.key() != b"end"} == before
    offsets = [each.offset() for each in found]
    assert offsets == sorted(set(offsets))
    assert offsets[0] >= (ROUNDS - 1) * KEYS  # each at its own


def test_a_record_without_a_key_is_refused(cleaning_broker: BrokerProcess, topic: str) -> None:
    create_topic(cleaning_broker.bootstrap, topic, **COMPACTED)
    errors = []
    sender = producer(cleaning_broker.bootstrap)
    sender.produce(topic, b"value", partition=0, on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(60) == 0
    assert [error.name() for error in errors] == ["INVALID_RECORD"]


def test_readers_in_the_gaps_go_on_behind_them(cleaning_broker: BrokerProcess, topic: str) -> None:
    bootstrap = cleaning_broker.bootstrap
    create_topic(bootstrap, topic, **COMPACTED)
    write_rounds(bootstrap, topic)

    def first_offset() -> int:
        sender = producer(bootstrap)
        sender.produce(topic, b"end", key=b"end", partition=0)
        assert sender.flush(60) == 0
        return read_to_end(bootstrap, topic)[0].offset()

    eventually(lambda: first_offset() >= (ROUNDS - 1) * KEYS, seconds_max=60)
    for offset in (0, 1, KEYS * ROUNDS // 2):
        with consumer(bootstrap) as reader:
            reader.assign([TopicPartition(topic, 0, offset)])
            message = reader.poll(30)
            assert message is not None
            assert message.error() is None
            assert message.offset() >= (ROUNDS - 1) * KEYS
