"""kafka-python: what goes in comes out, in every shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harness.broker_process import BrokerProcess
from harness.kafka_python_client import consumer, produce_all, producer, read, read_from
from kafka import TopicPartition
from kafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
MANY = 100_000


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(broker: BrokerProcess, made: str, acks: int | str) -> None:
    values = [b"%d" % number for number in range(1000)]
    produce_all(broker.bootstrap, made, values, acks=acks, enable_idempotence=False)
    assert [record.value for record in read_from(broker.bootstrap, made, 1000)] == values


@pytest.mark.parametrize("codec", CODECS)
def test_codec_passes_through(broker: BrokerProcess, made: str, codec: str | None) -> None:
    values = [b"compressible " * 20 + b"%d" % number for number in range(2000)]
    acknowledged = produce_all(broker.bootstrap, made, values, compression_type=codec)
    assert [answer.offset for answer in acknowledged] == list(range(2000))
    assert [record.value for record in read_from(broker.bootstrap, made, 2000)] == values


def test_idempotent_producer(broker: BrokerProcess, made: str) -> None:
    values = [b"%d" % number for number in range(5000)]
    acknowledged = produce_all(broker.bootstrap, made, values, enable_idempotence=True)
    assert [answer.offset for answer in acknowledged] == list(range(5000))
    assert [record.value for record in read_from(broker.bootstrap, made, 5000)] == values


def test_keys_headers_timestamps_and_nulls_come_back_as_they_were(broker: BrokerProcess, made: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("ünïcode", "wörld".encode())]
    sent_at = 1_700_000_000_123
    # This client refuses to send a record with neither key nor value.
    shapes = [(b"k", b"v"), (None, b"v"), (b"k", None), (b"", b""), (b"\0\xff", bytes(range(256)))]
    with producer(broker.bootstrap) as sender:
        for key, value in shapes:
            sender.send(made, value, key=key, headers=headers, timestamp_ms=sent_at, partition=0)
        sender.flush(timeout=20)
    got = read_from(broker.bootstrap, made, len(shapes))
    assert [(record.key, record.value) for record in got] == shapes
    assert all(list(record.headers) == headers for record in got)
    assert all(record.timestamp == sent_at for record in got)


def test_tombstones_in_a_compacted_topic(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(cleanup_policy="compact")
    with producer(broker.bootstrap) as sender:
        for value in (b"one", b"two", None):
            sender.send(topic, value, key=b"k", partition=0).get(timeout=20)
    assert [record.value for record in read_from(broker.bootstrap, topic, 3)] == [b"one", b"two", None]


def test_records_of_one_megabyte(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(max_message_bytes="4000000")
    values = [bytes([number]) * (1 << 20) for number in range(8)]
    produce_all(broker.bootstrap, topic, values, max_request_size=4_000_000)
    assert [record.value for record in read_from(broker.bootstrap, topic, 8)] == values


def test_record_too_large_is_a_clear_error(broker: BrokerProcess, made: str) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        produce_all(broker.bootstrap, made, [bytes(1_500_000)], max_request_size=4_000_000)
    (answer,) = produce_all(broker.bootstrap, made, [b"fits"])
    assert answer.offset == 0


def test_assign_from_earliest_latest_and_offset(broker: BrokerProcess, made: str) -> None:
    produce_all(broker.bootstrap, made, [b"%d" % number for number in range(100)])
    assert [record.offset for record in read_from(broker.bootstrap, made, 3, offset=42)] == [42, 43, 44]
    partition = TopicPartition(made, 0)
    with consumer(broker.bootstrap) as reader:
        reader.assign([partition])
        reader.seek_to_beginning(partition)
        assert read(reader, 1)[0].value == b"0"
        reader.seek_to_end(partition)
        assert reader.position(partition) == 100
        produce_all(broker.bootstrap, made, [b"after"])
        assert [(record.offset, record.value) for record in read(reader, 1)] == [(100, b"after")]


def test_offsets_for_times(broker: BrokerProcess, made: str) -> None:
    base = 1_700_000_000_000
    with producer(broker.bootstrap) as sender:
        for number in range(100):
            sender.send(made, b"%d" % number, timestamp_ms=base + number * 10, partition=0)
        sender.flush(timeout=20)
    partition = TopicPartition(made, 0)
    with consumer(broker.bootstrap) as reader:
        for wanted, expected in ((base, 0), (base + 495, 50), (base + 990, 99)):
            found = reader.offsets_for_times({partition: wanted})[partition]
            assert (found.offset, found.timestamp) == (expected, base + expected * 10)
        assert reader.offsets_for_times({partition: base + 991})[partition] is None


def test_offset_out_of_range(broker: BrokerProcess, made: str) -> None:
    produce_all(broker.bootstrap, made, [b"a"])
    partition = TopicPartition(made, 0)
    with consumer(broker.bootstrap, auto_offset_reset="none") as reader:
        reader.assign([partition])
        reader.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            read(reader, 1)
    with consumer(broker.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([partition])
        reader.seek(partition, 1000)
        assert read(reader, 1)[0].offset == 0


def test_empty_topic(broker: BrokerProcess, made: str) -> None:
    partition = TopicPartition(made, 0)
    with consumer(broker.bootstrap) as reader:
        assert (reader.beginning_offsets([partition])[partition], reader.end_offsets([partition])[partition]) == (0, 0)
        reader.assign([partition])
        reader.seek_to_beginning(partition)
        assert reader.poll(timeout_ms=300) == {}
        assert reader.position(partition) == 0


def test_unknown_topic(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    # This client asks for creation whatever it was told, so the broker is told not to.
    broker = new_broker({"auto.create.topics.enable": "false"})
    with consumer(broker.bootstrap) as reader:
        assert not reader.partitions_for_topic(topic)
    with (
        producer(broker.bootstrap, max_block_ms=1000) as sender,
        pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)),
    ):
        sender.send(topic, b"a").get(timeout=20)


def test_producing_creates_the_topic(broker: BrokerProcess, topic: str) -> None:
    produce_all(broker.bootstrap, topic, [b"a"])
    assert read_from(broker.bootstrap, topic, 1)[0].value == b"a"


def test_large_topic_over_several_partitions(broker: BrokerProcess, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=4)
    with producer(broker.bootstrap, batch_size=65_536) as sender:
        futures = [sender.send(topic, b"%d" % number, partition=number % 4) for number in range(MANY)]
        sender.flush(timeout=60)
        assert all(future.succeeded() for future in futures)
    with consumer(broker.bootstrap) as reader:
        partitions = [TopicPartition(topic, index) for index in range(4)]
        reader.assign(partitions)
        reader.seek_to_beginning(*partitions)
        per_partition: dict[int, list[int]] = {index: [] for index in range(4)}
        for record in read(reader, MANY, seconds_max=60):
            per_partition[record.partition].append(int(record.value))
    for index, numbers in per_partition.items():
        assert numbers == list(range(index, MANY, 4))
