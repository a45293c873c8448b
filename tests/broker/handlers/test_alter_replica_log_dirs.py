"""AlterReplicaLogDirs: replicas move between the log directories of a broker, and DescribeLogDirs tells of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidemark.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


async def alter(client: Any, version: int, path: str, topic: str, *partitions: int) -> dict[int, int]:
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=list(partitions))
    answer = await client.ask(
        AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])]), version
    )
    (result,) = answer.results
    assert result.topic_name == topic
    return {each.partition_index: each.error_code for each in result.partitions}


async def places(client: Any, topic: str) -> dict[tuple[int, bool], str]:
    answer = await client.ask(DescribeLogDirsRequest(topics=None), 4)
    return {
        (each.partition_index, each.is_future_key): result.log_dir
        for result in answer.results
        for told in result.topics
        if told.name == topic
        for each in told.partitions
    }


async def until_in(client: Any, topic: str, partition: int, path: str) -> None:
    async with asyncio.timeout(20):
        while (await places(client, topic)) != {(partition, False): path}:
            await asyncio.sleep(0.01)


async def test_a_partition_moves_and_keeps_its_records(
    start_node: Any, connect: Any, tmp_path: Path, version: int
) -> None:
    paths = [str(tmp_path / name) for name in ("first", "second")]
    node = await start_node(tmp_path / "first", **{"log.dirs": ",".join(paths)})
    client = await connect(node)
    await client.create("t")
    await client.produce("t", b"before")
    ((_, began),) = (await places(client, "t")).items()
    target = next(each for each in paths if each != began)
    assert await alter(client, version, target, "t", 0) == {0: ErrorCode.NONE}
    await until_in(client, "t", 0, target)
    await client.produce("t", b"after")
    assert (Path(target) / "t-0").is_dir()
    assert not (Path(began) / "t-0").exists()
    assert await alter(client, version, target, "t", 0) == {0: ErrorCode.NONE}  # it is there
    fetched = await client.fetch("t", 0)
    records = bytes(fetched.records)
    assert b"before" in records
    assert b"after" in records


async def test_what_cannot_be_is_refused(start_node: Any, connect: Any, tmp_path: Path, version: int) -> None:
    node = await start_node(tmp_path / "only")
    client = await connect(node)
    await client.create("t")
    own = str(tmp_path / "only")
    assert await alter(client, version, str(tmp_path), "t", 0) == {0: ErrorCode.LOG_DIR_NOT_FOUND}
    assert await alter(client, version, "only", "t", 0) == {0: ErrorCode.LOG_DIR_NOT_FOUND}
    assert await alter(client, version, "", "t", 0) == {0: ErrorCode.LOG_DIR_NOT_FOUND}
    assert await alter(client, version, own, "t", 0, 7) == {0: 0, 7: ErrorCode.REPLICA_NOT_AVAILABLE}
    assert await alter(client, version, own, "missing", 0) == {0: ErrorCode.REPLICA_NOT_AVAILABLE}
