"""AssignReplicasToDirs: a broker says in which of its log directories its replicas are (KIP-858). All replicas of a
request are one commit.

A cluster that is not at level 3 of `tidemark.metadata.version` cannot note it, and refuses.

v0: the only one
"""

from __future__ import annotations

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata import directories
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.features import check_security_level
from tidemark.broker.metadata.image import Image, partition_record
from tidemark.broker.metadata.isr import check_sender
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryResult,
    PartitionResult,
    TopicData,
    TopicResult,
)


@handles(AssignReplicasToDirsRequest, AssignReplicasToDirsResponse)
async def assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> AssignReplicasToDirsResponse:
    results: list[DirectoryResult] = []

    def decide(image: Image) -> Job[list[Record]]:
        check_sender(image, broker_id=request.broker_id, broker_epoch=request.broker_epoch)
        check_security_level(image)
        results.clear()
        records: list[Record] = []
        for each in request.directories:
            directory = bytes(each.id)
            result = DirectoryResult(id=directory)
            results.append(result)
            for topic in each.topics:
                told = yield from _topic(
                    image, topic, settings, records, broker_id=request.broker_id, directory=directory
                )
                result.topics.append(told)
        return records

    try:
        await store.change(decide)
    except Refused as refusal:
        return AssignReplicasToDirsResponse(error_code=refusal.code)
    return AssignReplicasToDirsResponse(directories=results)


def _topic(
    image: Image, asked: TopicData, settings: DynamicConfig, records: list[Record], *, broker_id: int, directory: bytes
) -> Job[TopicResult]:
    result = TopicResult(topic_id=asked.topic_id)
    topic = image.topic_by_id(bytes(asked.topic_id))
    for each in asked.partitions:
        yield
        answer = PartitionResult(partition_index=each.partition_index)
        result.partitions.append(answer)
        if topic is None:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            continue
        try:
            after = directories.assign(
                image, topic, each.partition_index, settings.current, broker_id=broker_id, directory=directory
            )
        except Refused as refusal:
            answer.error_code = refusal.code
            continue
        if after is not topic.partitions[each.partition_index]:
            records.append(partition_record(topic.topic_id, each.partition_index, after))
    return result
