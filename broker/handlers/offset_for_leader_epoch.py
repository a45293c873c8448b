"""OffsetForLeaderEpoch: where an epoch ended, so that a reader notices that its records were replaced (KIP-320).

v3: the id of a follower that asks
v4: flexible (KIP-482)
"""

from __future__ import annotations

from functools import partial

from tidemark.broker.core.errors import EXPECTED, check_leader_epoch, fault_of
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.replication.replica_table import ReplicaTable
from tidemark.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, _call: Call, *, replicas: ReplicaTable
) -> Job[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        partitions = yield from in_slices(partial(_one, replicas, topic.topic), topic.partitions)
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
    return response


def _one(replicas: ReplicaTable, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = replicas.leader_of(topic, asked.partition)
        check_leader_epoch(asked.current_leader_epoch, partition.leader_epoch)
        answer.leader_epoch, answer.end_offset = partition.log.epoch_end_offset(asked.leader_epoch)
    except EXPECTED as error:
        answer.error_code = fault_of(error, where=f"{topic}-{asked.partition}").code
    return answer
