"""A disk that does not take a batch, and what the producer's next batches are told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.broker.replication import unwritten_batches
from tidemark.broker.replication.unwritten_batches import UnwrittenBatches
from tidemark.protocol.records import Record, build_batch
from tidemark.storage import OutOfOrderSequence, WriteFailed

from .conftest import Cluster, now_ms

New = Callable[..., Cluster]


def send(cluster: Cluster, sequence: int, *, producer_id: int = 7) -> int:
    batch = build_batch([Record(value=b"x")], producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return cluster.led(1).append(memoryview(batch), now_ms()).last_offset


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
        unwritten.add(producer_id, WriteFailed("no room"))
    assert unwritten.why_skipped(0) is None
    assert unwritten.why_skipped(1) is not None
