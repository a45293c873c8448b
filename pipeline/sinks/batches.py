"""The record of finished batches: a compacted topic of the sink's own, written in the same transactions as the rows.

Partition 0 holds the runs: the last one drives the sink. Partition 1 + w holds what writer w finished last. Each
partition's newest record is near its end, so it is found by reading backwards a little, however long the topic is.

A topic and not a group's committed offsets: those are forgotten after a week without a commit
(offsets.retention.minutes), and with them the promise.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tidemark.pipeline.cluster import ClusterAdmin

RUNS = 0
LOOK_BACK_RECORDS = 64
READ_SECONDS_MAX = 60.0


BY_KEY, BY_POSITION = "key", "position"
Ends = Mapping[str, Mapping[str, int]]


class BatchesUnreadable(Exception):
    """The topic of finished batches could not be read in time."""


class CheckpointMismatch(Exception):
    """What the checkpoint asks for is not what was written under the same batch number."""


class PartsDisagree(Exception):
    """A part of this batch was written by rows divided in another way: the driver must divide them like that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One start of the sink's driver."""

    run: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one writer wrote of one batch, in one transaction, and which records of the sources the batch was made of:
    a number alone would say nothing once a checkpoint was restored from a copy."""

    run: str
    query: str
    batch: int
    writer: int
    writers: int
    rows: int
    division: str = BY_KEY
    ends: Ends = field(
        default_factory=dict
    )  # {"orders": {"0": 3000}}; empty where the checkpoint cannot be looked into
    topic_ids: Mapping[str, str] = field(default_factory=dict)


def partition_of(writer: int) -> int:
    return 1 + writer


def encode(record: Run | Part) -> tuple[bytes, bytes]:
    """Key and value. The key is what compaction keeps the newest of."""
    key = b"run" if isinstance(record, Run) else b"writer-%d" % record.writer
    return key, json.dumps(asdict(record)).encode()


def decode(key: bytes | None, value: bytes | None) -> Run | Part | None:
    if key is None or value is None:
        return None
    kind = Run if key == b"run" else Part
    known = {each.name for each in fields(kind)}
    return kind(**{name: each for name, each in json.loads(value).items() if name in known})


def is_finished(part: Part | None, wanted: Part) -> bool:
    """Is the part that is wanted written? `part` is what its writer finished last.

    The checkpoint decides which batch comes next, and this record what was written. They can only disagree if one of
    them is not of this history: then going on would lose records or write them twice, and neither is done.
    """
    if part is None or part.query != wanted.query or part.batch < wanted.batch:
        return False
    if part.batch > wanted.batch:
        if part.run == wanted.run:
            return True  # a late attempt at a part that this run has long finished
        raise CheckpointMismatch(older_checkpoint(part, wanted.batch))
    if part.ends and wanted.ends and part.ends != wanted.ends:
        raise CheckpointMismatch(older_checkpoint(part, wanted.batch))
    if anew := sorted(name for name, was in part.topic_ids.items() if wanted.topic_ids.get(name, was) != was):
        raise CheckpointMismatch(
            f"Batch {part.batch} was begun on topics that were deleted since, and made anew: {', '.join(anew)}. "
            "Start with an empty checkpoint."
        )
    if (part.writers, part.division) != (wanted.writers, wanted.division):
        was, now = (f"{each.writers} writers by {each.division}" for each in (part, wanted))
        raise PartsDisagree(f"Batch {part.batch} was divided among {was}, not {now}.")
    return True


def older_checkpoint(part: Part, batch: int) -> str:
    """What to do about a checkpoint that does not know what was written, in sentences."""
    there = (
        f"The checkpoint is older than what this sink has written: it goes on with batch {batch}, but batch "
        f"{part.batch} is written, and was made of other records. Was it restored from a copy? Going on would lose "
        "records. Restore a copy that was made later"
    )
    if not part.ends:
        return f"{there}; or start with an empty checkpoint and a 'start' after what was written."
    after = ", ".join(
        f"{topic}: {{{', '.join(f'{partition}: {offset}' for partition, offset in sorted(by_partition.items()))}}}"
        for topic, by_partition in sorted(part.ends.items())
    )
    return (
        f"{there}; or go on after what was written, with an empty checkpoint and 'start: {{offsets: {{{after}}}}}' "
        "(all sinks of the pipeline then begin there)."
    )


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


def last_part(cluster: ClusterAdmin, topic: str, *, query: str | None) -> Part | None:
    """The newest batch that a topic sink's writers have finished under this checkpoint."""
    parts = [] if query is None else [each for each in _newest_parts(cluster, topic) if each.query == query]
    return max(parts, key=lambda each: each.batch, default=None)


def has_parts(cluster: ClusterAdmin, topic: str) -> bool:
    """Under any checkpoint."""
    return bool(_newest_parts(cluster, topic))


def _newest_parts(cluster: ClusterAdmin, topic: str) -> list[Part]:
    writers = range(len(cluster.topics().get(topic, ())) - 1)
    found = [newest(cluster.settings, topic, partition_of(writer)) for writer in writers]
    return [each for each in found if isinstance(each, Part)]


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
