"""Partitions found on disk by a broker that has no metadata yet: a data directory that Apache Kafka wrote.

Their topics are taken over with their ids, so that a directory can be moved to Tidemark as it is.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from tidemark.broker.cluster.topic_creation import new_topic_id
from tidemark.broker.metadata.image import PartitionImage, partition_record
from tidemark.broker.metadata.records import Record, TopicRecord
from tidemark.broker.metadata.store import MetadataStore
from tidemark.storage import LogConfig, LogDirectory, StorageError

log = logging.getLogger(__name__)

NOT_TOPICS = frozenset({"__cluster_metadata"})  # Kafka's own metadata log


async def adopt_topics(store: MetadataStore, directories: Sequence[LogDirectory], *, node_id: int) -> None:
    found: dict[str, dict[int, tuple[bytes | None, int]]] = defaultdict(dict)
    for directory in directories:
        for name, index in list(directory.partitions()):
            if name not in NOT_TOPICS:
                found[name][index] = _look_at(directory, name, index)
    records: list[Record] = []
    for name, partitions in sorted(found.items()):
        if sorted(partitions) != list(range(len(partitions))):
            log.error("topic %s is not taken over: it has only the partitions %s", name, sorted(partitions))
            continue
        topic_id = next((each for each, _ in partitions.values() if each), None) or new_topic_id()
        records.append(TopicRecord(name=name, topic_id=topic_id))
        for index in range(len(partitions)):
            epoch = max(0, partitions[index][1])
            partition = PartitionImage(
                replicas=(node_id,), isr=(node_id,), leader=node_id, leader_epoch=epoch, partition_epoch=0
            )
            records.append(partition_record(topic_id, index, partition))
        log.info("taking over topic %s with %d partition(s) found on disk", name, len(partitions))
    if records:
        await store.change(lambda _image: records)


def _look_at(directory: LogDirectory, name: str, index: int) -> tuple[bytes | None, int]:
    try:
        partition = directory.open_log(name, index, config=LogConfig())
    except (OSError, StorageError) as error:  # it becomes an offline partition, with this error in the log
        log.error("%s-%d cannot be opened: %s", name, index, error)
        return None, 0
    return partition.topic_id, partition.latest_epoch
