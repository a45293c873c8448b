"""Checkpoints of high watermarks, as the loop goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tidemark.storage import LogDirectory

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
