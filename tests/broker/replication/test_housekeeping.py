"""Checkpoints of high watermarks, as the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.protocol.records import EndTransaction, Record, build_batch, read_header
from tidemark.storage import LogDirectory

from .conftest import now_ms

New = Callable[..., Any]


async def test_high_watermarks_are_written_by_themselves_and_only_when_they_changed(
    new_cluster: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = new_cluster(nodes=1)
    housekeeping = cluster.nodes[1].housekeeping
    file = cluster.directory / "1" / "replication-offset-checkpoint"
    cluster.append(1, b"a", b"b")
    await housekeeping.checkpoint_high_watermarks()
    assert file.read_text() == "0\n1\nt 0 2\n"
    writes: list[Any] = []
    monkeypatch.setattr(LogDirectory, "write_high_watermarks", lambda self: writes.append(dict(self.high_watermarks)))
    await housekeeping.checkpoint_high_watermarks()
    assert not writes
    cluster.append(1, b"c")
    await housekeeping.checkpoint_high_watermarks()
    assert writes == [{("t", 0): 3}]


async def test_a_node_writes_its_high_watermarks_as_often_as_it_is_set_to(
    start_node: Any, connect: Any, tmp_path: Any
) -> None:
    node = await start_node(replica_high_watermark_checkpoint_interval_ms=100)
    client = await connect(node)
    await client.create("t")
    await client.produce("t", b"a")

    async with asyncio.timeout(10):
        while not any("t 0 1" in path.read_text() for path in tmp_path.rglob("replication-offset-checkpoint")):
            await asyncio.sleep(0.01)


async def test_what_is_committed_is_forgotten_where_nobody_reads(new_cluster: New) -> None:
    """5.6 GB a day at 1,000 transactions a second, before."""
    cluster = new_cluster(nodes=1)
    led = cluster.led(1)
    for sequence in range(20):
        batch = build_batch(
            [Record(value=b"x")], producer_id=1, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        led.append_checked(batch, read_header(batch), now_ms())
        led.append_marker(EndTransaction(1, 0, commit=True, coordinator_epoch=1), version=0, now_ms=now_ms())
    assert led.log.producer_states.unreplicated_count == 20
    cluster.nodes[1].housekeeping.forget_replicated(cluster.nodes[1].table)
    assert led.log.producer_states.unreplicated_count == 0


async def test_the_high_watermark_of_a_deleted_topic_is_not_that_of_a_new_one_of_its_name(new_cluster: New) -> None:
    cluster = new_cluster(nodes=1)
    cluster.append(1, b"a", b"b")
    node = cluster.nodes[1]
    [directory] = node.table.directories
    gone = cluster.led(1)
    directory.logs["t", 0] = object()
    assert node.housekeeping.high_watermarks(directory, [gone]) == {}
    directory.logs["t", 0] = gone.log
