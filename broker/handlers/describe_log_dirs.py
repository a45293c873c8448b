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
    request: DescribeLogDirsRequest, _call: Call, *, replicas: ReplicaTable
) -> Job[DescribeLogDirsResponse]:
    wanted: Wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    response = DescribeLogDirsResponse()
    for directory in list(replicas.directories):
        response.results.append((yield from _directory(replicas, directory, wanted)))
    for path in replicas.offline_directories:
        response.results.append(DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    return response


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
