"""The pipeline's position as a consumer group's: finished batches' offsets are committed, for Kafka's tools to see.

Spark itself never reads them: its checkpoint decides where a query goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidemark.pipeline.checkpoint import Checkpoint, furthest_behind
from tidemark.pipeline.cluster import TIMEOUT_S, ClusterAdmin, Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer


class GroupPosition:
    """Where the pipeline is: a partition's position is that of the sink that is furthest behind."""

    def __init__(self, cluster: ClusterAdmin, group: str, sinks: Iterable[str]) -> None:
        self._cluster = cluster
        self.group = group
        self._by_sink: dict[str, dict[Partition, int]] = {sink: {} for sink in sinks}
        self._committed: dict[Partition, int] = {}
        self._reader: Consumer | None = None

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

    def ahead_of(self, planned: Mapping[Partition, int]) -> dict[Partition, int]:
        """Where the group has been further than a checkpoint's newest batch: then that is not the newest checkpoint. It
        is known only while the broker keeps a group's offsets, and empty if it cannot be asked."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            found = self._consumer().committed([TopicPartition(*each) for each in planned], timeout=TIMEOUT_S)
        except KafkaException:
            return {}
        at = {(each.topic, each.partition): each.offset for each in found}
        return {each: offset for each, offset in at.items() if offset > planned[each]}

    def commit(self) -> None:
        """Commit to the group, if anything has moved. What cannot be committed now is, with the next batch."""
        from confluent_kafka import KafkaException, TopicPartition

        position = self.position()
        moved = {each: offset for each, offset in position.items() if self._committed.get(each) != offset}
        if not moved:
            return
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in moved.items()]
        try:
            self._consumer().commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            return
        self._committed |= moved

    def _consumer(self) -> Consumer:
        if self._reader is None:
            self._reader = self._cluster.consumer(**{"group.id": self.group})
        return self._reader

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def older_than_group(checkpoint: Checkpoint, sinks: Iterable[str], position: GroupPosition) -> str | None:
    """What to say of a checkpoint that goes less far than the group once was. It tells where no sink can: a user's
    function, or a table whose batch of this number was made of other records. A sink that has finished none is a new
    one, which the group need not know of."""
    planned: dict[Partition, int] = {}
    for sink in sinks:
        last = checkpoint.last_planned(sink)
        if last is not None and checkpoint.last_batch(sink) is not None:
            planned = furthest_behind(planned, checkpoint.planned(sink, last))
    ahead = position.ahead_of(planned) if planned else {}
    if not ahead:
        return None
    places = (
        f"{topic}-{number} at {at}, not {planned[topic, number]}" for (topic, number), at in sorted(ahead.items())
    )
    return (
        f"The group {position.group} was further than this checkpoint goes: {', '.join(places)}. Was the checkpoint "
        "restored from a copy? Then what lies between is read again, under numbers that batches had before: a sink "
        "whose output does not tell which batches it has (a function of yours) may take them for written."
    )
