"""A disk that does not take a batch, and what the producer's next batches are told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.replication import unwritten_batches
from tidemark.broker.replication.unwritten_batches import UnwrittenBatches, UnwrittenBound
from tidemark.protocol.records import BatchHeader, Record, build_batch, read_header
from tidemark.storage import OutOfOrderSequence, WriteFailed

from .conftest import Cluster, now_ms

New = Callable[..., Cluster]


def send(cluster: Cluster, sequence: int, *, producer_id: int = 7) -> int:
    batch = build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return cluster.led(1).append(memoryview(batch), now_ms()).last_offset


def header(producer_id: int, sequence: int) -> BatchHeader:
    batch = build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return read_header(batch)


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
        with pytest.raises(WriteFailed):
            send(cluster, sequence)
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


def test_not_every_producer_is_remembered() -> None:
    unwritten = UnwrittenBatches()
    for producer_id in range(unwritten_batches.PRODUCERS_MAX + 1):
        unwritten.add(header(producer_id, 0), WriteFailed("no room"))
    assert unwritten.why_skipped(header(0, 1)) is None
    assert unwritten.why_skipped(header(1, 1)) is not None


def test_the_first_of_a_producers_unwritten_batches_is_the_one_to_wait_for() -> None:
    unwritten = UnwrittenBatches()
    for sequence in (5, 6, 5, 7):
        unwritten.add(header(7, sequence), WriteFailed("no room"))
    waiting = [sequence for sequence in range(4, 9) if unwritten.why_skipped(header(7, sequence)) is not None]
    assert waiting == [6, 7, 8]


def test_what_is_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    unwritten = UnwrittenBatches()
    unwritten.add(header(7, 5), WriteFailed("no room"))
    monkeypatch.setattr(unwritten_batches, "IN_FLIGHT_SECONDS_MAX", 0.0)
    unwritten.add(header(8, 0), WriteFailed("no room"))
    assert list(unwritten._by_producer) == [8]


def test_all_partitions_of_a_node_remember_so_many_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten_batches, "REMEMBERED_MAX", 3)
    bound = UnwrittenBound()
    partitions = [UnwrittenBatches(bound) for _ in range(3)]
    for partition in partitions:
        for producer_id in (1, 2):
            partition.add(header(producer_id, 5), WriteFailed("no room"))
    remembered = [list(partition._by_producer) for partition in partitions]
    assert remembered == [[], [2], [1, 2]]
    assert len(bound) == 3


def test_one_that_was_refused_again_since_is_not_forgotten_with_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwritten_batches, "REMEMBERED_MAX", 2)
    unwritten = UnwrittenBatches(UnwrittenBound())
    for sequence in (5, 6, 7):
        unwritten.add(header(1, sequence), WriteFailed("no room"))
    assert unwritten.why_skipped(header(1, 8)) is not None


def test_what_is_over_in_one_partition_is_forgotten_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = UnwrittenBound()
    one, other = UnwrittenBatches(bound), UnwrittenBatches(bound)
    one.add(header(1, 5), WriteFailed("no room"))
    monkeypatch.setattr(unwritten_batches, "IN_FLIGHT_SECONDS_MAX", 0.0)
    other.add(header(2, 5), WriteFailed("no room"))
    assert not one
