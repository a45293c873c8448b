"""The record of finished batches: a compacted topic of the sink's own, written in the same transactions as the rows.

Partition 0 holds the runs: the last one drives the sink. Partition 1 + w holds what writer w finished last. Each
partition's newest record is near its end, so it is found by reading backwards a little, however long the topic is.

A topic and not a group's committed offsets: those are forgotten after a week without a commit
(offsets.retention.minutes), and with them the promise.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

RUNS = 0
LOOK_BACK_RECORDS = 64
READ_SECONDS_MAX = 60.0


class BatchesUnreadable(Exception):
    """The topic of finished batches could not be read in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of the sink's driver."""

    run: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one writer wrote of one batch, in one transaction."""

    run: str
    query: str
    batch: int
    writer: int
    writers: int
    rows: int


def partition_of(writer: int) -> int:
    return 1 + writer


def encode(record: Run | Part) -> tuple[bytes, bytes]:
    """Key and value. The key is what compaction keeps the newest of."""
    key = b"run" if isinstance(record, Run) else b"writer-%d" % record.writer
    return key, json.dumps(asdict(record)).encode()


def decode(key: bytes | None, value: bytes | None) -> Run | Part | None:
    if key is None or value is None:
        return None
    fields = json.loads(value)
    return Run(**fields) if key == b"run" else Part(**fields)


def newest(settings: dict[str, Any], topic: str, partition: int) -> Run | Part | None:
    """The newest committed record of a partition; None if there is none."""
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer(
        {
            **settings,
            "group.id": "tidemark-pipeline",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,  # a fetch that finds nothing shows the end of the partition
        }
    )
    try:
        low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=READ_SECONDS_MAX)
        back = LOOK_BACK_RECORDS
        while low < high:
            start = max(low, high - back)
            found = _last_from(reader, TopicPartition(topic, partition, start))
            if found is not None or start == low:
                return found
            back *= 8  # nothing but aborted records and markers so far
        return None
    finally:
        reader.close()


def _last_from(reader: Any, start: Any) -> Run | Part | None:
    from confluent_kafka import KafkaError

    reader.assign([start])
    deadline = time.monotonic() + READ_SECONDS_MAX
    last = None
    while time.monotonic() < deadline:
        message = reader.poll(0.5)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._PARTITION_EOF:
                return last
            continue  # a broker that is away is waited for
        last = decode(message.key(), message.value()) or last
    raise BatchesUnreadable(f"The topic {start.topic!r} could not be read to its end in {READ_SECONDS_MAX:.0f} s.")
