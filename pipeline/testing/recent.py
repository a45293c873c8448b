"""The newest records of a pipeline's real topics, to try it on: read without a group, and nothing is written there."""

from __future__ import annotations

from typing import Any

from tidemark.pipeline.cluster import ClusterAdmin, Partition
from tidemark.pipeline.inputs import partitions_of
from tidemark.pipeline.spec import Pipeline
from tidemark.pipeline.testing.cases import Given

TABLE_RECORDS_MAX = 100_000  # a table is read as a whole, or joins would miss what is older


def recent_records(pipeline: Pipeline, *, count: int) -> dict[str, list[Given]]:
    """By topic: the last `count` of each stream, and all of each table."""
    cluster = ClusterAdmin(pipeline.bootstrap, pipeline.kafka)
    found: dict[str, list[Given]] = {}
    for source in pipeline.topic_sources:
        partitions = partitions_of(source, cluster)
        topics = {topic for topic, _ in partitions}
        most = TABLE_RECORDS_MAX if source.table else count
        for topic in sorted(topics):
            found[topic] = _last(cluster, [each for each in partitions if each[0] == topic], most)
    return found


def _last(cluster: ClusterAdmin, partitions: list[Partition], count: int) -> list[Given]:
    """Of all partitions together, by time."""
    from confluent_kafka import TopicPartition

    ends, ranges = cluster.ends(partitions), cluster.ranges(partitions)
    starts = [TopicPartition(t, p, max(ranges[t, p][0], end - count)) for (t, p), end in ends.items() if end]
    read: list[tuple[int, Given]] = []
    with cluster.consumer(**{"isolation.level": "read_committed", "enable.partition.eof": True}) as reader:
        for start in starts:
            reader.assign([start])
            while (message := reader.poll(15)) is not None and not message.error():
                read.append((message.timestamp()[1], _given(message)))
    return [each for _, each in sorted(read, key=lambda pair: pair[0])[-count:]]


def _given(message: Any) -> Given:
    return Given(
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value or b"") for name, value in message.headers() or ()),
        timestamp_ms=message.timestamp()[1],
        partition=message.partition(),
    )
