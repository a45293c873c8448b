"""confluent-kafka: what goes in comes out, in every shape."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition
from harness.broker_process import BrokerProcess
from harness.confluent_client import (
    Delivered,
    consumer,
    produce_all,
    producer,
    read,
    read_everything,
    read_from,
    send_patiently,
)

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
MANY = 300_000


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(broker: BrokerProcess, made: str, acks: str) -> None:
    values = [b"%d" % number for number in range(1000)]
    delivered = produce_all(broker.bootstrap, made, values, acks=acks)
    assert delivered.errors == []
    assert [message.value() for message in read_from(broker.bootstrap, made, 1000)] == values


@pytest.mark.parametrize("codec", CODECS)
def test_codec_passes_through(broker: BrokerProcess, made: str, codec: str) -> None:
    values = [b"compressible " * 20 + b"%d" % number for number in range(2000)]
    delivered = produce_all(broker.bootstrap, made, values, compression_type=codec, linger_ms=20)
    assert [offset for _, offset, _ in delivered.acknowledged] == list(range(2000))
    assert [message.value() for message in read_from(broker.bootstrap, made, 2000)] == values


@pytest.mark.parametrize("codec", CODECS[1:])
def test_topic_recompresses_to_its_own_codec(broker: BrokerProcess, make_topic: Callable[..., str], codec: str) -> None:
    topic = make_topic(compression_type=codec)
    values = [b"compressible " * 20 + b"%d" % number for number in range(500)]
    for theirs in CODECS:
        assert produce_all(broker.bootstrap, topic, values, compression_type=theirs).errors == []
    assert [message.value() for message in read_from(broker.bootstrap, topic, 2500)] == values * 5


def test_idempotent_producer(broker: BrokerProcess, made: str) -> None:
    values = [b"%d" % number for number in range(20_000)]
    delivered = produce_all(broker.bootstrap, made, values, enable_idempotence=True, linger_ms=0)
    assert [(offset, value) for _, offset, value in delivered.acknowledged] == list(enumerate(values))
    assert [message.value() for message in read_everything(broker.bootstrap, made)] == values


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_idempotent_producer_keeps_its_order_where_every_record_is_checked(
    broker: BrokerProcess, make_topic: Callable[..., str], is_control: bool, codec: str
) -> None:
    """Five requests in flight, of which the large ones are read on a thread."""
    topic = make_topic() if is_control else make_topic(tidemark_produce_validation="strict")
    sender = producer(broker.bootstrap, enable_idempotence=True, linger_ms=1, compression_type=codec)
    values = [b"%d" % number for number in range(30_000)]
    for number, value in enumerate(values):
        send_patiently(sender, topic, value)
        if number % 5000 == 4000:
            sender.poll(0.02)  # a pause, so that small batches follow large ones
    assert sender.flush(60) == 0
    assert [message.value() for message in read_everything(broker.bootstrap, topic)] == values


def test_keys_headers_timestamps_and_nulls_come_back_as_they_were(broker: BrokerProcess, made: str) -> None:
    sender = producer(broker.bootstrap)
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ünïcode", "wörld".encode())]
    sent_at = 1_700_000_000_123
    shapes = [(b"k", b"v"), (None, b"v"), (b"k", None), (None, None), (b"", b""), (b"\0\xff", bytes(range(256)))]
    for key, value in shapes:
        sender.produce(made, key=key, value=value, headers=headers, timestamp=sent_at, partition=0)
    assert sender.flush(30) == 0
    got = read_from(broker.bootstrap, made, len(shapes))
    assert [(message.key(), message.value()) for message in got] == shapes
    assert all(message.headers() == headers for message in got)
    assert all(message.timestamp() == (1, sent_at) for message in got)


def test_tombstones_in_a_compacted_topic(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(cleanup_policy="compact")
    sender = producer(broker.bootstrap)
    for value in (b"one", b"two", None):
        sender.produce(topic, key=b"k", value=value, partition=0)
    assert sender.flush(30) == 0
    assert [message.value() for message in read_from(broker.bootstrap, topic, 3)] == [b"one", b"two", None]
    refused = produce_all(broker.bootstrap, topic, [b"no key"])
    assert [error.code() for error in refused.errors] == [KafkaError.INVALID_RECORD]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_records_of_one_megabyte(broker: BrokerProcess, make_topic: Callable[..., str], codec: str) -> None:
    topic = make_topic(max_message_bytes="4000000")
    values = [bytes([number]) * (1 << 20) for number in range(8)]
    delivered = produce_all(broker.bootstrap, topic, values, message_max_bytes=4_000_000, compression_type=codec)
    assert delivered.errors == []
    assert [message.value() for message in read_from(broker.bootstrap, topic, 8)] == values


def test_record_too_large_is_a_clear_error(broker: BrokerProcess, made: str) -> None:
    delivered = produce_all(broker.bootstrap, made, [bytes(1_500_000)], message_max_bytes=4_000_000)
    assert [error.code() for error in delivered.errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert produce_all(broker.bootstrap, made, [b"fits"]).acknowledged == [(0, 0, b"fits")]


def test_assign_from_earliest_latest_and_offset(broker: BrokerProcess, made: str) -> None:
    produce_all(broker.bootstrap, made, [b"%d" % number for number in range(100)])
    assert read_from(broker.bootstrap, made, 1, offset=OFFSET_BEGINNING)[0].value() == b"0"
    assert [message.offset() for message in read_from(broker.bootstrap, made, 3, offset=42)] == [42, 43, 44]
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(made, 0, OFFSET_END)])
        # Resolves the end now, so that what is produced next is the first to be read.
        assert reader.consume(1, timeout=1) == []
        produce_all(broker.bootstrap, made, [b"after"])
        (message,) = read(reader, 1)
        assert (message.offset(), message.value()) == (100, b"after")


def test_offsets_for_times_and_watermarks(broker: BrokerProcess, made: str) -> None:
    sender = producer(broker.bootstrap)
    base = 1_700_000_000_000
    for number in range(100):
        sender.produce(made, b"%d" % number, timestamp=base + number * 10, partition=0)
    assert sender.flush(30) == 0
    with consumer(broker.bootstrap) as reader:
        assert reader.get_watermark_offsets(TopicPartition(made, 0), timeout=20) == (0, 100)
        for wanted, expected in ((base, 0), (base + 495, 50), (base + 990, 99), (base + 991, OFFSET_END)):
            (found,) = reader.offsets_for_times([TopicPartition(made, 0, wanted)], timeout=20)
            assert found.offset == expected
        reader.assign(reader.offsets_for_times([TopicPartition(made, 0, base + 495)], timeout=20))
        assert read(reader, 1)[0].value() == b"50"


def test_offset_out_of_range(broker: BrokerProcess, made: str) -> None:
    produce_all(broker.bootstrap, made, [b"a"])
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(made, 0, 1000)])
        with pytest.raises(KafkaException) as caught:
            read(reader, 1)
        # librdkafka wraps the broker's answer when its reset policy is "error".
        assert caught.value.args[0].code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    with consumer(broker.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition(made, 0, 1000)])
        assert read(reader, 1)[0].offset() == 0


def test_empty_topic_reports_its_end(broker: BrokerProcess, made: str) -> None:
    with consumer(broker.bootstrap, enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(made, 0, OFFSET_BEGINNING)])
        (event,) = reader.consume(1, timeout=20)
        assert event.error() is not None
        assert (event.error().code(), event.offset()) == (KafkaError._PARTITION_EOF, 0)


def test_unknown_topic(broker: BrokerProcess, topic: str) -> None:
    # An assigned topic that does not exist is awaited in silence by librdkafka, so the consumer is asked directly.
    with consumer(broker.bootstrap) as reader:
        error = reader.list_topics(topic, timeout=20).topics[topic].error
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
        with pytest.raises(KafkaException) as caught:
            reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=5)
        assert caught.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)
    # How long librdkafka lets a topic be unknown before it says so: its default is half a minute.
    impatient = {"topic_metadata_propagation_max_ms": 500, "message_timeout_ms": 5000}
    delivered = produce_all(broker.bootstrap, topic, [b"a"], partition=7, allow_auto_create_topics=False, **impatient)
    assert [error.code() for error in delivered.errors] == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_producing_creates_the_topic(broker: BrokerProcess, topic: str) -> None:
    assert len(produce_all(broker.bootstrap, topic, [b"a"]).acknowledged) == 1
    assert read_from(broker.bootstrap, topic, 1)[0].value() == b"a"


def test_large_topic_over_several_partitions(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)
    delivered = Delivered()
    sender = producer(broker.bootstrap, linger_ms=5, enable_idempotence=True)
    for number in range(MANY):
        send_patiently(sender, topic, b"%d" % number, partition=number % 4, on_delivery=delivered)
        if number % 1000 == 0:
            sender.poll(0)
    assert sender.flush(60) == 0
    assert (len(delivered.acknowledged), delivered.errors) == (MANY, [])
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(4)])
        per_partition: dict[int, list[int]] = {partition: [] for partition in range(4)}
        for message in read(reader, MANY, seconds_max=60):
            per_partition[message.partition()].append(int(message.value() or b"-1"))
    for partition, numbers in per_partition.items():
        assert numbers == list(range(partition, MANY, 4))


def test_reader_is_woken_by_each_record(broker: BrokerProcess, made: str) -> None:
    """One at a time, end to end: the long poll must not cost its whole wait."""
    sender = producer(broker.bootstrap, linger_ms=0)
    with consumer(broker.bootstrap, fetch_wait_max_ms=10_000) as reader:
        reader.assign([TopicPartition(made, 0, OFFSET_BEGINNING)])
        started = time.monotonic()
        for number in range(100):
            sender.produce(made, b"%d" % number, partition=0)
            sender.poll(0)
            assert read(reader, 1)[0].value() == b"%d" % number
        assert time.monotonic() - started < 10
    assert sender.flush(10) == 0
