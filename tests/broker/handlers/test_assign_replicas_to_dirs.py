from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)

FIRST, SECOND = b"a" * 16, b"b" * 16


@pytest.fixture
async def two_directories(cluster: Any) -> Any:
    """Broker 2 has two log directories and a replica of `t`; the broker has not said yet where it is."""
    await cluster.register(2, log_dirs=[FIRST, SECOND])
    await cluster.heartbeat(2)
    await cluster.create("t", [1, 2])
    return cluster


async def assign(
    cluster: Any, directory: bytes, *, index: int = 0, topic_id: bytes | None = None, **fields: Any
) -> Any:
    topic = TopicData(
        topic_id=topic_id or cluster.image.topics["t"].topic_id, partitions=[PartitionData(partition_index=index)]
    )
    request = {"broker_id": 2, "broker_epoch": cluster.epochs[2], **fields}
    directories = [DirectoryData(id=directory, topics=[topic])]
    return await cluster.controller.ask(AssignReplicasToDirsRequest(directories=directories, **request), 0)


def code_of(answer: Any) -> int:
    return int(answer.directories[0].topics[0].partitions[0].error_code)


async def test_a_broker_says_where_its_replica_is_and_moves_it(two_directories: Any) -> None:
    for directory in (FIRST, SECOND, SECOND):
        answer = await assign(two_directories, directory)
        assert (answer.error_code, code_of(answer)) == (0, 0)
        assert two_directories.partition().directory_of(2) == directory


async def test_what_the_broker_does_not_hold_is_refused_one_by_one(two_directories: Any) -> None:
    await two_directories.create("u", [1])
    others = two_directories.image.topics["u"].topic_id
    assert code_of(await assign(two_directories, FIRST, index=9)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code_of(await assign(two_directories, FIRST, topic_id=b"x" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert code_of(await assign(two_directories, FIRST, topic_id=others)) == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_broker_of_an_earlier_epoch_changes_nothing(two_directories: Any) -> None:
    before = two_directories.partition()
    answer = await assign(two_directories, FIRST, broker_epoch=two_directories.epochs[2] - 1)
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert two_directories.partition() == before
