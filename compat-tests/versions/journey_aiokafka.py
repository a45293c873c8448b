"""What an application does in its first minute, with whatever aiokafka is on the path."""

import asyncio
import sys

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

RECORDS = 100
bootstrap, topic = sys.argv[1:]


async def main() -> int:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
    await producer.start()
    for i in range(RECORDS):
        await producer.send_and_wait(topic, f"plain-{i}".encode(), key=f"k{i}".encode())
    await producer.stop()
    writer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic)
    await writer.start()
    for outcome in ("committed", "aborted", "committed"):
        await writer.begin_transaction()
        for i in range(RECORDS):
            await writer.send(topic, f"{outcome}-{i}".encode(), key=f"k{i}".encode())
        await (writer.commit_transaction() if outcome == "committed" else writer.abort_transaction())
    await writer.stop()
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    values = []
    while len(values) < 3 * RECORDS:
        message = await asyncio.wait_for(consumer.getone(), 30)
        assert not message.value.startswith(b"aborted")
        values.append(message.value)
    await consumer.commit()
    await consumer.stop()
    return len(values)


print("version", aiokafka.__version__)
print("read", asyncio.run(main()))
