"""A disk that hangs holds up what is on it, and nothing on other disks."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tidemark.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidemark.protocol.records import Record, build_batch
from tidemark.storage.files import Files

PARTITIONS = 24  # more on each disk than there are threads for it


def produce(partition: int) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=bytes(build_batch([Record(value=b"a")])))
    return ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name="t", partition_data=[data])])


@pytest.fixture
def disks(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "hangs", tmp_path / "works"


async def test_partitions_on_other_disks_are_synced_while_one_disk_hangs(
    start_node: Any, connect: Any, disks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, works = disks
    settings = {"log_dirs": f"{hangs},{works}", "log_flush_interval_messages": "1", "metadata_log_dir": str(works)}
    node = await start_node(**settings)
    client = await connect(node)
    await client.create("t", partitions=PARTITIONS)
    goes_on = threading.Event()

    def fdatasync(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}").startswith(str(hangs)):
            assert goes_on.wait(60)
        os.fdatasync(fd)

    monkeypatch.setattr(Files, "fdatasync", staticmethod(fdatasync))
    try:
        on_hung = [index for index in range(PARTITIONS) if (hangs / f"t-{index}").exists()]
        on_other = [index for index in range(PARTITIONS) if (works / f"t-{index}").exists()]
        assert len(on_hung) > 4
        assert on_other
        waiting = await connect(node)
        for index in on_hung:
            waiting.send(produce(index), 9)
        async with asyncio.timeout(30):
            for index in on_other:
                answer = await client.call(produce(index), ProduceResponse, 9)
                assert answer.responses[0].partition_responses[0].error_code == 0
    finally:
        goes_on.set()
