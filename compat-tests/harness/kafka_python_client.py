"""kafka-python as the suites use it: no groups, explicit partitions and offsets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

SECONDS_MAX = 30


@contextmanager
def producer(bootstrap: str, **settings: Any) -> Iterator[KafkaProducer]:
    sender = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=1, **settings)
    try:
        yield sender
    finally:
        sender.close(timeout=SECONDS_MAX)


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[KafkaConsumer]:
    reader = KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, fetch_max_wait_ms=100, **settings
    )
    try:
        yield reader
    finally:
        reader.close()


def produce_all(
    bootstrap: str, topic: str, values: list[bytes | None], *, partition: int = 0, **settings: Any
) -> list[Any]:
    """Sends and waits for every acknowledgement."""
    with producer(bootstrap, **settings) as sender:
        futures = [sender.send(topic, value, partition=partition) for value in values]
        sender.flush(timeout=SECONDS_MAX)
        return [future.get(timeout=SECONDS_MAX) for future in futures]


def read(reader: KafkaConsumer, count: int, *, seconds_max: float = SECONDS_MAX) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + seconds_max
    while len(records) < count:
        for polled in reader.poll(timeout_ms=200, max_records=count - len(records)).values():
            records.extend(polled)
        assert time.monotonic() < deadline, f"{len(records)} of {count} records in {seconds_max} s"
    return records


def read_from(bootstrap: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Any]:
    with consumer(bootstrap) as reader:
        target = TopicPartition(topic, partition)
        reader.assign([target])
        reader.seek(target, offset)
        return read(reader, count)
