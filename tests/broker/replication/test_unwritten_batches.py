"""A disk that does not take a batch, and what the producer's next batches are told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tidemark.broker.core.errors import Refused
from tidemark.broker.replication import unwritten_batches
from tidemark.broker.replication.unwritten_batches import UnwrittenBatches, UnwrittenOnNode
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import BatchHeader, Record, build_batch, read_header
from tidemark.storage import OutOfOrderSequence, WriteFailed

from .conftest import Cluster, now_ms

New = Callable[..., Cluster]

FAILED = ErrorCode.KAFKA_STORAGE_ERROR


def send(cluster: Cluster, sequence: int, *, producer_id: int = 7) -> int:
    batch = build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return cluster.led(1).append(memoryview(batch), now_ms()).last_offset


def header(producer_id: int, sequence: int) -> BatchHeader:
    batch = build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return read_header(batch)


def is_behind(unwritten: UnwrittenBatches, producer_id: int, sequence: int) -> bool:
    try:
        unwritten.check(header(producer_id, sequence))
    except Refused:
        return True
    return False


@pytest.fixture
async def cluster_without_room(new_cluster: New, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Producer 7 has written its first batch, and the second was not taken. Then there is room again."""
    cluster = new_cluster(nodes=1)
    send(cluster, 0)

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as disk:
        disk.setattr(cluster.led(1).log.segments.active, "_write", full)
        with pytest.raises(WriteFailed):
            send(cluster, 1)
    return cluster


async def test_what_was_sent_behind_an_unwritten_batch_hears_of_the_disk(cluster_without_room: Cluster) -> None:
    """And not of a skipped sequence number, which makes clients begin anew and write things twice."""
    cluster = cluster_without_room
    for sequence in (2, 3):
        with pytest.raises(Refused) as refused:
            send(cluster, sequence)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [send(cluster, sequence) for sequence in (1, 2, 3)] == [1, 2, 3], "retried in order"


async def test_another_producer_that_skips_a_number_is_told_so(cluster_without_room: Cluster) -> None:
    send(cluster_without_room, 0, producer_id=8)
    with pytest.raises(OutOfOrderSequence):
        send(cluster_without_room, 2, producer_id=8)


async def test_a_producer_that_gave_its_batch_up_is_told_so_later(
    cluster_without_room: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwritten_batches, "IN_FLIGHT_SECONDS_MAX", 0.0)
    with pytest.raises(OutOfOrderSequence):
        send(cluster_without_room, 2)


def test_a_node_remembers_so_many_producers_on_all_its_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten_batches, "PRODUCERS_MAX", 10)
    node = UnwrittenOnNode()
    partitions = [UnwrittenBatches(node) for _ in range(6)]
    for producer_id in (1, 2):
        for unwritten in partitions:
            unwritten.add(header(producer_id, 0), FAILED)
    assert len(node) == 10
    known = [is_behind(unwritten, 1, 1) for unwritten in partitions]
    assert known == [False, False, True, True, True, True], "the oldest two made room"
    assert all(is_behind(unwritten, 2, 1) for unwritten in partitions)
    for unwritten in partitions:
        unwritten.forget(1)
        unwritten.forget(2)
    assert len(node) == 0
    assert not any(partitions)


def test_the_first_of_a_producers_unwritten_batches_is_the_one_to_wait_for() -> None:
    unwritten = UnwrittenBatches()
    for sequence in (5, 6, 5, 7):
        unwritten.add(header(7, sequence), FAILED)
    waiting = [sequence for sequence in range(4, 9) if is_behind(unwritten, 7, sequence)]
    assert waiting == [6, 7, 8]


def test_what_is_long_ago_is_forgotten_on_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    node = UnwrittenOnNode()
    old, new = UnwrittenBatches(node), UnwrittenBatches(node)
    old.add(header(7, 5), FAILED)
    monkeypatch.setattr(unwritten_batches, "IN_FLIGHT_SECONDS_MAX", 0.0)
    new.add(header(8, 0), FAILED)
    assert (bool(old), bool(new), len(node)) == (False, True, 1)


async def test_no_request_is_kept_for_what_it_was_told(cluster_without_room: Cluster) -> None:
    """An exception that is kept keeps its traceback, whose frames have the batch, which may be a megabyte."""
    batch = build_batch([Record(value=b"x")], producer_id=7, producer_epoch=0, base_sequence=2)
    with suppress(Refused):
        cluster_without_room.led(1).append(memoryview(batch), now_ms())
    batch.pop()  # or a BufferError: there is still a view of it
