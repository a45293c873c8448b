"""What is told of consumer groups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.broker.metrics.groups import GroupMetrics
from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage import Log, LogConfig

T0 = 1_700_000_000_000


class LedReplica:
    """As much of one as is asked for."""

    is_truncating = False

    def __init__(self, log: Log) -> None:
        self.log = log
        self.high_watermark = log.end_offset
        self.read = log.read


@pytest.fixture
def readers() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as threads:
        yield threads


async def test_how_far_a_group_that_is_gone_is_behind_is_told_after_a_restart(
    tmp_path: Path, readers: Executor
) -> None:
    """Nobody else looks up anything in the log, and after a clean stop its indexes are not in memory."""
    log = Log.open(str(tmp_path / "t-0"), config=LogConfig(), clean=True)
    for number in range(100):
        batch = build_batch([Record(timestamp=T0 + number * 1000, value=bytes(500))])
        log.append(batch, read_header(batch), leader_epoch=0, now_ms=T0)
    log.close()
    log = Log.open(str(tmp_path / "t-0"), config=LogConfig(), clean=True)
    replica: Any = LedReplica(log)
    replicas: Any = SimpleNamespace(readers=readers)
    metrics = GroupMetrics(lambda: None, replicas, detail=lambda: "partition")
    async with asyncio.timeout(10):
        while metrics._lag(replica, 40, T0 + 100_000) != (60, 60.0):
            await asyncio.sleep(0.01)
    log.close()
