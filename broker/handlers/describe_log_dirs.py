"""DescribeLogDirs: the log directories of this broker, and the size of each partition in them (KIP-113).

v2: flexible (KIP-482)
v3: an error of the whole answer
v4: size and free space of the volume (KIP-827)
v5: whether a directory takes no new partitions, which is never so here (KIP-1066)
"""

from __future__ import annotations

import logging
import os

from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.replication.directory_moves import DirectoryMoves
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from tidemark.storage import LogDirectory

log = logging.getLogger(__name__)

Wanted = set[tuple[str, int]] | None  # None: everything


@handles(DescribeLogDirsRequest, DescribeLogDirsResponse)
def describe_log_dirs(
    request: DescribeLogDirsRequest, _call: Call, *, replicas: ReplicaTable, directory_moves: DirectoryMoves
) -> Job[DescribeLogDirsResponse]:
    wanted: Wanted = None
    if request.topics is not None:
        wanted = set()
        here = [
            *(directory.logs for directory in replicas.directories),
            {move.place for move in directory_moves.under_way.values()},
        ]
        for topic in request.topics:
            for index in topic.partitions:
                place = (topic.topic, index)
                if any(place in places for places in here):  # a large set takes long to grow, and to be freed
                    wanted.add(place)
                yield
    response = DescribeLogDirsResponse()
    for directory in list(replicas.directories):
        result = yield from _directory(replicas, directory, wanted)
        _add_futures(result, directory, directory_moves, wanted)
        response.results.append(result)
    for path in replicas.offline_directories:
        response.results.append(DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    return response


def _add_futures(result: DescribeLogDirsResult, directory: LogDirectory, moves: DirectoryMoves, wanted: Wanted) -> None:
    """Replicas on their way to this directory."""
    for move in moves.under_way.values():
        name, index = move.place
        if move.target is not directory or (wanted is not None and move.place not in wanted):
            continue
        future = DescribeLogDirsPartition(
            partition_index=index, partition_size=move.size_bytes, offset_lag=move.offset_lag, is_future_key=True
        )
        topic = next((each for each in result.topics if each.name == name), None)
        if topic is None:
            topic = DescribeLogDirsTopic(name=name)
            result.topics.append(topic)
        topic.partitions.append(future)


def _directory(replicas: ReplicaTable, directory: LogDirectory, wanted: Wanted) -> Job[DescribeLogDirsResult]:
    result = DescribeLogDirsResult(log_dir=os.path.abspath(directory.path))
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in list(replicas):
        yield
        if os.path.dirname(partition.log.directory) != str(directory.path):
            continue
        if wanted is not None and (partition.topic, partition.index) not in wanted:
            continue
        topic = topics.setdefault(partition.topic, DescribeLogDirsTopic(name=partition.topic))
        topic.partitions.append(
            DescribeLogDirsPartition(partition_index=partition.index, partition_size=partition.log.size_bytes)
        )
    result.topics = list(topics.values())
    try:
        result.total_bytes, result.usable_bytes = directory.files.space(directory.path)
    except OSError as error:
        log.error("%s cannot be read: %s", directory.path, error)
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
