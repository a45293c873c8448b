"""aiokafka: the broker goes away and comes back under a running client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from harness.aiokafka_client import consumer, producer, read, read_from
from harness.broker_process import BrokerProcess

RECORDS = 5_000


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
async def test_nothing_is_lost_or_doubled_over_restarts(
    new_broker: Callable[..., BrokerProcess], topic: str, clean: bool
) -> None:
    """An idempotent producer and a consumer run on while the broker is restarted under them."""
    broker = new_broker()
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    acknowledged: list[Any] = []
    midway = asyncio.Event()

    async def send() -> None:
        async with producer(broker.bootstrap, enable_idempotence=True, retry_backoff_ms=50) as sender:
            for first in range(0, RECORDS, 100):
                sent = [await sender.send(topic, b"%d" % (first + index), partition=0) for index in range(100)]
                # Paced by acknowledgements, so that the restart falls into the middle of the work.
                acknowledged.extend(await asyncio.wait_for(asyncio.gather(*sent), 60))
                if first >= RECORDS // 4:
                    midway.set()

    partition = TopicPartition(topic, 0)
    async with consumer(broker.bootstrap, retry_backoff_ms=50) as reader:
        reader.assign([partition])
        reader.seek(partition, 0)
        sending = asyncio.create_task(send())
        await asyncio.wait_for(midway.wait(), 60)
        await asyncio.to_thread(broker.restart, clean=clean)
        seen = [record.value for record in await read(reader, RECORDS, seconds_max=120)]
    await sending
    expected = [b"%d" % number for number in range(RECORDS)]
    assert [answer.offset for answer in acknowledged] == list(range(RECORDS))
    assert seen == expected
    assert [record.value for record in await read_from(broker.bootstrap, topic, RECORDS)] == expected
