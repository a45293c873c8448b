"""The pipeline's position as a consumer group's: finished batches' offsets are committed, for Kafka's tools to see.

Spark itself never reads them: its checkpoint decides where a query goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidemark.pipeline.cluster import ClusterAdmin, Partition


class GroupPosition:
    """Where the pipeline is: a partition's position is that of the sink that is furthest behind."""

    def __init__(self, cluster: ClusterAdmin, group: str, sinks: Iterable[str]) -> None:
        self._cluster = cluster
        self._group = group
        self._by_sink: dict[str, dict[Partition, int]] = {sink: {} for sink in sinks}
        self._committed: dict[Partition, int] = {}
        self._reader: Any = None

    def note(self, sink: str, positions: Mapping[Partition, int]) -> None:
        self._by_sink[sink].update(positions)

    def of_sink(self, sink: str) -> Mapping[Partition, int]:
        return self._by_sink[sink]

    def position(self) -> dict[Partition, int]:
        """Of the partitions that every sink which reads their topic has got to."""
        found = {}
        for partition in sorted({each for positions in self._by_sink.values() for each in positions}):
            reading = [each for each in self._by_sink.values() if any(topic == partition[0] for topic, _ in each)]
            if all(partition in each for each in reading):
                found[partition] = min(each[partition] for each in reading)
        return found

    def commit(self) -> None:
        """Commit to the group, if anything has moved. What cannot be committed now is, with the next batch."""
        from confluent_kafka import KafkaException, TopicPartition

        position = self.position()
        moved = {each: offset for each, offset in position.items() if self._committed.get(each) != offset}
        if not moved:
            return
        if self._reader is None:
            self._reader = self._cluster.consumer(**{"group.id": self._group})
        try:
            self._reader.commit(offsets=[TopicPartition(t, p, o) for (t, p), o in moved.items()], asynchronous=False)
        except KafkaException:
            return
        self._committed |= moved

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
