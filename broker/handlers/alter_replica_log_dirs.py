"""AlterReplicaLogDirs: replicas of this broker move to another of its log directories (KIP-113).

The answer says that the move has begun; DescribeLogDirs tells how far it is (a partition with `is_future_key`). A
replica that is in the directory already stays there, and a move of it elsewhere ends. For a replica that this broker
does not have the directory is remembered, and the answer is REPLICA_NOT_AVAILABLE: kafka-reassign-partitions asks for
the directory first, and for the replica then.

v1: throttled answers say so
v2: flexible (KIP-482)
"""

from __future__ import annotations

import os

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.replication.directory_moves import DirectoryMoves
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@handles(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, _call: Call, *, replicas: ReplicaTable, directory_moves: DirectoryMoves
) -> Job[AlterReplicaLogDirsResponse]:
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for directory in request.dirs:
        yield
        for topic in directory.topics:
            yield
            result = results.setdefault(topic.name, AlterReplicaLogDirTopicResult(topic_name=topic.name))
            for index in topic.partitions:
                code = _move(replicas, directory_moves, directory.path, topic.name, index)
                result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
                yield
    return AlterReplicaLogDirsResponse(results=list(results.values()))


def _move(replicas: ReplicaTable, moves: DirectoryMoves, path: str, topic: str, index: int) -> ErrorCode:
    if not os.path.isabs(path):
        return ErrorCode.LOG_DIR_NOT_FOUND
    if path in replicas.offline_directories:
        return ErrorCode.KAFKA_STORAGE_ERROR
    target = next((each for each in replicas.directories if each.path == os.path.normpath(path)), None)
    if target is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        replica = replicas.replica_of(topic, index)
    except Refused as refusal:
        if refusal.code == ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.KAFKA_STORAGE_ERROR
        moves.prefer((topic, index), target)
        return ErrorCode.REPLICA_NOT_AVAILABLE
    moves.begin(replica, target)
    return ErrorCode.NONE
