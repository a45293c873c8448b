"""aiokafka: what goes in comes out, in every shape."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from harness.aiokafka_client import consumer, produce_all, producer, read, read_from
from harness.broker_process import BrokerProcess

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
MANY = 100_000


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acks(broker: BrokerProcess, made: str, acks: int | str) -> None:
    values = [b"%d" % number for number in range(1000)]
    await produce_all(broker.bootstrap, made, values, acks=acks)
    assert [record.value for record in await read_from(broker.bootstrap, made, 1000)] == values


@pytest.mark.parametrize("codec", CODECS)
async def test_codec_passes_through(broker: BrokerProcess, made: str, codec: str | None) -> None:
    values = [b"compressible " * 20 + b"%d" % number for number in range(2000)]
    acknowledged = await produce_all(broker.bootstrap, made, values, compression_type=codec)
    assert [answer.offset for answer in acknowledged] == list(range(2000))
    assert [record.value for record in await read_from(broker.bootstrap, made, 2000)] == values


async def test_idempotent_producer(broker: BrokerProcess, made: str) -> None:
    values = [b"%d" % number for number in range(5000)]
    acknowledged = await produce_all(broker.bootstrap, made, values, enable_idempotence=True)
    assert [answer.offset for answer in acknowledged] == list(range(5000))
    assert [record.value for record in await read_from(broker.bootstrap, made, 5000)] == values


async def test_keys_headers_timestamps_and_nulls_come_back_as_they_were(broker: BrokerProcess, made: str) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("ünïcode", "wörld".encode())]
    sent_at = 1_700_000_000_123
    # This client refuses to send a record with neither key nor value.
    shapes = [(b"k", b"v"), (None, b"v"), (b"k", None), (b"", b""), (b"\0\xff", bytes(range(256)))]
    async with producer(broker.bootstrap) as sender:
        for key, value in shapes:
            await sender.send_and_wait(made, value, key=key, headers=headers, timestamp_ms=sent_at, partition=0)
    got = await read_from(broker.bootstrap, made, len(shapes))
    assert [(record.key, record.value) for record in got] == shapes
    assert all(list(record.headers) == headers for record in got)
    assert all(record.timestamp == sent_at for record in got)


async def test_tombstones_in_a_compacted_topic(broker: BrokerProcess, make_topic: Callable[..., Any]) -> None:
    topic = await make_topic(cleanup_policy="compact")
    async with producer(broker.bootstrap) as sender:
        for value in (b"one", b"two", None):
            await sender.send_and_wait(topic, value, key=b"k", partition=0)
    assert [record.value for record in await read_from(broker.bootstrap, topic, 3)] == [b"one", b"two", None]


async def test_records_of_one_megabyte(broker: BrokerProcess, make_topic: Callable[..., Any]) -> None:
    topic = await make_topic(max_message_bytes="4000000")
    values: list[bytes | None] = [bytes([number]) * (1 << 20) for number in range(8)]
    await produce_all(broker.bootstrap, topic, values, max_request_size=4_000_000)
    assert [record.value for record in await read_from(broker.bootstrap, topic, 8)] == values


async def test_record_too_large_is_a_clear_error(broker: BrokerProcess, made: str) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        await produce_all(broker.bootstrap, made, [bytes(1_500_000)], max_request_size=4_000_000)
    (answer,) = await produce_all(broker.bootstrap, made, [b"fits"])
    assert answer.offset == 0


async def test_assign_from_earliest_latest_and_offset(broker: BrokerProcess, made: str) -> None:
    await produce_all(broker.bootstrap, made, [b"%d" % number for number in range(100)])
    assert [record.offset for record in await read_from(broker.bootstrap, made, 3, offset=42)] == [42, 43, 44]
    partition = TopicPartition(made, 0)
    async with consumer(broker.bootstrap) as reader:
        reader.assign([partition])
        await reader.seek_to_beginning(partition)
        assert (await read(reader, 1))[0].value == b"0"
        await reader.seek_to_end(partition)
        assert await reader.position(partition) == 100
        await produce_all(broker.bootstrap, made, [b"after"])
        assert [(record.offset, record.value) for record in await read(reader, 1)] == [(100, b"after")]


async def test_offsets_for_times(broker: BrokerProcess, made: str) -> None:
    base = 1_700_000_000_000
    async with producer(broker.bootstrap) as sender:
        sent = [
            await sender.send(made, b"%d" % number, timestamp_ms=base + number * 10, partition=0)
            for number in range(100)
        ]
        await asyncio.gather(*sent)
    partition = TopicPartition(made, 0)
    async with consumer(broker.bootstrap) as reader:
        for wanted, expected in ((base, 0), (base + 495, 50), (base + 990, 99)):
            found = (await reader.offsets_for_times({partition: wanted}))[partition]
            assert found is not None
            assert (found.offset, found.timestamp) == (expected, base + expected * 10)
        assert (await reader.offsets_for_times({partition: base + 991}))[partition] is None


async def test_offset_out_of_range(broker: BrokerProcess, made: str) -> None:
    await produce_all(broker.bootstrap, made, [b"a"])
    partition = TopicPartition(made, 0)
    async with consumer(broker.bootstrap, auto_offset_reset="none") as reader:
        reader.assign([partition])
        reader.seek(partition, 1000)
        with pytest.raises(OffsetOutOfRangeError):
            await read(reader, 1)
    async with consumer(broker.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([partition])
        reader.seek(partition, 1000)
        assert (await read(reader, 1))[0].offset == 0


async def test_empty_topic(broker: BrokerProcess, made: str) -> None:
    partition = TopicPartition(made, 0)
    async with consumer(broker.bootstrap) as reader:
        assert (await reader.end_offsets([partition]))[partition] == 0
        reader.assign([partition])
        await reader.seek_to_beginning(partition)
        assert await reader.getmany(timeout_ms=300) == {}
        assert await reader.position(partition) == 0


async def test_unknown_topic(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    # This client always asks for creation, so the broker is told not to.
    broker = new_broker({"auto.create.topics.enable": "false"})
    async with producer(broker.bootstrap, request_timeout_ms=1000) as sender:
        with pytest.raises((KafkaTimeoutError, UnknownTopicOrPartitionError)):
            await sender.send_and_wait(topic, b"a")
    async with consumer(broker.bootstrap) as reader:
        assert topic not in await reader.topics()


async def test_producing_creates_the_topic(broker: BrokerProcess, topic: str) -> None:
    await produce_all(broker.bootstrap, topic, [b"a"])
    assert (await read_from(broker.bootstrap, topic, 1))[0].value == b"a"


async def test_large_topic_over_several_partitions(broker: BrokerProcess, make_topic: Callable[..., Any]) -> None:
    topic = await make_topic(partitions=4)
    async with producer(broker.bootstrap, max_batch_size=65_536) as sender:
        sent = [await sender.send(topic, b"%d" % number, partition=number % 4) for number in range(MANY)]
        await asyncio.gather(*sent)
    async with consumer(broker.bootstrap) as reader:
        partitions = [TopicPartition(topic, index) for index in range(4)]
        reader.assign(partitions)
        await reader.seek_to_beginning(*partitions)
        per_partition: dict[int, list[int]] = {index: [] for index in range(4)}
        for record in await read(reader, MANY, seconds_max=60):
            per_partition[record.partition].append(int(record.value))
    for index, numbers in per_partition.items():
        assert numbers == list(range(index, MANY, 4))
