"""A broker that may have fewer files open than it has partitions and clients (`ulimit -n`): it refuses, clearly and at
once, what is too much, and serves everybody else."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidemark import portable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.records import Record, build_batch, read_header
from tidemark.storage import LogConfig, LogDirectory, TooManyOpenFiles

ROOM = 120  # descriptors that the broker and its clients can still open
PARTITIONS = 150


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (portable.open_descriptors() + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_partitions_that_cannot_be_opened_leave_room_for_clients_and_for_what_the_broker_writes(
    start_node: Any, connect: Any, few_descriptors: None
) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create("t", partitions=PARTITIONS)
    codes = [(await client.produce("t", b"x", partition=index)).error_code for index in range(PARTITIONS)]
    assert set(codes) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
    taken = codes.index(ErrorCode.KAFKA_STORAGE_ERROR)
    assert taken > ROOM // 2
    newcomer = await asyncio.wait_for(connect(node), 5)
    answer = await asyncio.wait_for(newcomer.produce("t", b"y", partition=0), 5)
    assert answer.error_code == ErrorCode.NONE
    assert (await newcomer.fetch("t", 0)).records
    for replica in node._replicas.table.topics["t"].partitions.values():
        assert not replica.log.is_offline
    os.close(os.open(os.devnull, os.O_RDONLY))  # as a checkpoint is opened


@pytest.mark.parametrize("kind", ["kafka", "http"])
async def test_connections_that_are_too_many_are_closed_and_do_not_hang(
    start_node: Any, few_descriptors: None, kind: str
) -> None:
    node = await start_node(http_listeners="HTTP://127.0.0.1:0")
    address = node.address if kind == "kafka" else node.http_endpoints["HTTP"]
    writers = []
    try:
        async with asyncio.timeout(20):
            while True:  # each takes two descriptors of this process: the client's, and the broker's
                reader, writer = await asyncio.open_connection(*address)
                writers.append(writer)
                await asyncio.sleep(0.01)
                if reader.at_eof() or reader.exception() is not None:
                    break
        assert len(writers) > ROOM // 4
        os.close(os.open(os.devnull, os.O_RDONLY))
    finally:
        for writer in writers:
            writer.transport.abort()


def test_files_that_are_only_read_leave_room_for_those_that_are_written_to(
    few_descriptors: None, tmp_path: Path
) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    directory = LogDirectory.open(str(tmp_path))
    assert directory._cache._limit <= limit // 16
    directory.close()


def test_a_stop_is_clean_though_there_were_logs_that_could_not_be_opened(few_descriptors: None, tmp_path: Path) -> None:
    directory = LogDirectory.open(str(tmp_path))
    batch = build_batch([Record(value=b"x")])
    refused = 0
    logs = [directory.open_log("t", index, config=LogConfig()) for index in range(PARTITIONS)]
    for log in reversed(logs):  # so that those that cannot be opened are closed first
        try:
            log.append(batch, read_header(batch), leader_epoch=0, now_ms=0)
        except TooManyOpenFiles:
            refused += 1
    assert refused > 10
    directory.close(broker_epoch=7)
    directory = LogDirectory.open(str(tmp_path))
    assert directory.clean_epoch == 7
    directory.close()
