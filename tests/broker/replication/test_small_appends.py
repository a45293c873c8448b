"""Small batches while the disk is slow: written at once, unless other files are due with them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.core.registry import Call
from tidemark.broker.handlers.produce.fast_path import produce_fast
from tidemark.broker.metadata.image import TOPIC_RESOURCE
from tidemark.broker.replication.examination import MustWait
from tidemark.broker.replication.partition import Partition
from tidemark.broker.replication.writers import AT_ONCE_BYTES_MAX_IF_SLOW
from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.protocol.schema import codec
from tidemark.storage import Appended, PendingAppend

from .conftest import Cluster

New = Callable[..., Cluster]
VALUE = b"x" * 200


def append(partition: Partition) -> Any:
    return partition.append(memoryview(build_batch([Record(value=VALUE)])), 1)


def configured(new_cluster: New, **configs: str) -> Cluster:
    cluster = new_cluster(nodes=1)
    cluster.configure({(TOPIC_RESOURCE, "t"): {key.replace("_", "."): value for key, value in configs.items()}})
    return cluster


def partition_with(new_cluster: New, **configs: str) -> Partition:
    return configured(new_cluster, **configs).led(1)


@pytest.mark.parametrize("at_once_bytes_max", [sys.maxsize, AT_ONCE_BYTES_MAX_IF_SLOW])
async def test_the_end_of_an_index_is_saved_by_a_thread_where_the_disk_is_slow(
    new_cluster: New, at_once_bytes_max: int
) -> None:
    partition = partition_with(new_cluster, index_interval_bytes="100")
    indexes = partition.log.segments.active.indexes
    while not indexes.is_save_near:
        append(partition)
    partition.writers.at_once_bytes_max = at_once_bytes_max
    if at_once_bytes_max == sys.maxsize:
        assert isinstance(append(partition), Appended)
        return
    with pytest.raises(MustWait):
        append(partition)
    batch = memoryview(build_batch([Record(value=VALUE)]))
    pending = partition.begin_append(batch, read_header(batch), 1)
    assert isinstance(pending, PendingAppend)
    pending()
    partition.finish_append(pending)
    assert indexes.unsaved_entries <= 1
    assert isinstance(append(partition), Appended)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
async def test_the_quick_way_leaves_a_batch_that_must_wait_as_it_came(new_cluster: New, kind: str) -> None:
    """A batch that is stamped already would be refused as one that its producer had stamped."""
    cluster = configured(new_cluster, index_interval_bytes="100", message_timestamp_type=kind)
    partition = cluster.led(1)
    while not partition.log.segments.active.indexes.is_save_near:
        append(partition)
    partition.writers.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_SLOW
    batch = bytes(build_batch([Record(value=VALUE)]))
    frame = bytearray()
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    codec(ProduceRequest, 12).encode(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), frame)
    before = bytes(frame)
    call = Call(SimpleNamespace(peer="x"), 12, "c")
    assert produce_fast(frame, 0, call, replicas=cluster.nodes[1].table) is None
    assert frame == before


async def test_a_segment_that_is_full_is_followed_by_another_that_a_thread_makes_where_the_disk_is_slow(
    new_cluster: New,
) -> None:
    partition = partition_with(new_cluster, segment_bytes=str(1 << 20))
    while not partition.log.has_more_to_write(300):
        append(partition)
    partition.writers.at_once_bytes_max = AT_ONCE_BYTES_MAX_IF_SLOW
    with pytest.raises(MustWait):
        append(partition)
    assert len(partition.log.segments) == 1
    batch = memoryview(build_batch([Record(value=VALUE)]))
    pending = partition.begin_append(batch, read_header(batch), 1)
    assert isinstance(pending, PendingAppend)
    pending()
    partition.finish_append(pending)
    assert len(partition.log.segments) == 2
