"""Transactions with aiokafka: commit, abort, isolation, fencing, offsets."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from harness.aiokafka_client import consumer, produce_all, producer, read
from harness.broker_process import BrokerProcess


def fresh(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


async def write(sender: AIOKafkaProducer, topic: str, *values: bytes, commit: bool) -> None:
    await sender.begin_transaction()
    for value in values:
        await sender.send_and_wait(topic, value, partition=0)
    if commit:
        await sender.commit_transaction()
    else:
        await sender.abort_transaction()


async def seen(broker: BrokerProcess, topic: str, count: int, isolation: str) -> list[bytes]:
    async with consumer(broker.bootstrap, isolation_level=isolation) as reader:
        target = TopicPartition(topic, 0)
        reader.assign([target])
        reader.seek(target, 0)
        records = await read(reader, count)
        assert not await reader.getmany(timeout_ms=300)
        return [record.value for record in records]


async def test_committed_records_are_seen_and_aborted_ones_are_not(broker: BrokerProcess, made: str) -> None:
    async with producer(broker.bootstrap, transactional_id=fresh("t")) as sender:
        await write(sender, made, b"1", b"2", commit=True)
        await write(sender, made, b"3", commit=False)
        await write(sender, made, b"4", commit=True)
    assert await seen(broker, made, 3, "read_committed") == [b"1", b"2", b"4"]
    assert await seen(broker, made, 4, "read_uncommitted") == [b"1", b"2", b"3", b"4"]


async def test_a_second_producer_with_the_same_id_fences_the_first(broker: BrokerProcess, made: str) -> None:
    name = fresh("fence")
    async with producer(broker.bootstrap, transactional_id=name) as first:
        await first.begin_transaction()
        await first.send_and_wait(made, b"lost", partition=0)
        async with producer(broker.bootstrap, transactional_id=name) as second:
            with pytest.raises(KafkaError):
                await first.commit_transaction()
            await write(second, made, b"kept", commit=True)
    assert await seen(broker, made, 1, "read_committed") == [b"kept"]


async def test_offsets_move_with_the_transaction(broker: BrokerProcess, made: str) -> None:
    await produce_all(broker.bootstrap, made, [b"%d" % each for each in range(10)])
    group = fresh("g")
    target = TopicPartition(made, 0)
    reader = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False)
    await reader.start()
    reader.assign([target])
    async with producer(broker.bootstrap, transactional_id=fresh("t")) as sender:
        for offset, commit in ((4, True), (8, False)):
            await sender.begin_transaction()
            await sender.send_offsets_to_transaction({target: offset}, group)
            if commit:
                await sender.commit_transaction()
            else:
                await sender.abort_transaction()
            assert await asyncio.wait_for(reader.committed(target), 10) == 4
    await reader.stop()
