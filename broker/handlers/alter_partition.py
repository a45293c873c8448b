"""AlterPartition: leaders ask the controller for other in-sync replicas (KIP-497). All partitions of a request are one
commit.

A change that rests on an older leader or partition epoch is refused. One that completes a reassignment and with it
moves the leadership is answered NEW_LEADER_ELECTED.

v2: topics by id; brokers that are fenced or shutting down are INELIGIBLE_REPLICA (KIP-841)
v3: the epoch of each broker in the new set, so that one that has restarted since is refused (KIP-903)
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image, PartitionImage, partition_record
from tidemark.broker.metadata.isr import ANY_EPOCH, IsrProposal, alter_isr, check_sender
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionData,
    PartitionResult,
    TopicResult,
)

_EPOCHS_FROM = 3


@handles(AlterPartitionRequest, AlterPartitionResponse)
async def alter_partition(
    request: AlterPartitionRequest, call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> AlterPartitionResponse:
    results: list[TopicResult] = []

    def decide(image: Image) -> Job[list[Record]]:
        check_sender(image, broker_id=request.broker_id, broker_epoch=request.broker_epoch)
        results.clear()
        records: list[Record] = []
        for topic in request.topics:
            result = TopicResult(topic_id=topic.topic_id)
            results.append(result)
            for data in topic.partitions:
                alter = _change(image, topic.topic_id, data, settings, leader=request.broker_id, version=call.version)
                answer, changed = _one(data, alter, image.partition(topic.topic_id, data.partition_index))
                result.partitions.append(answer)
                if changed is not None:
                    records.append(partition_record(topic.topic_id, data.partition_index, changed))
                yield
        return records

    try:
        await store.change(decide, is_urgent=True)
    except Refused as refusal:
        return AlterPartitionResponse(error_code=refusal.code)
    return AlterPartitionResponse(topics=results)


def _change(
    image: Image, topic_id: bytes, data: PartitionData, settings: DynamicConfig, *, leader: int, version: int
) -> Callable[[], PartitionImage]:
    def alter() -> PartitionImage:
        topic = image.topic_by_id(topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id.")
        if version >= _EPOCHS_FROM:
            isr = [(each.broker_id, each.broker_epoch) for each in data.new_isr_with_epochs]
        else:
            isr = [(broker_id, ANY_EPOCH) for broker_id in data.new_isr]
        proposal = IsrProposal(
            partition_index=data.partition_index,
            leader_epoch=data.leader_epoch,
            partition_epoch=data.partition_epoch,
            isr=isr,
            leader_recovery_state=data.leader_recovery_state,
        )
        return alter_isr(image, topic, proposal, settings.current, leader=leader)

    return alter


def _one(
    data: PartitionData, alter: Callable[[], PartitionImage], before: PartitionImage | None
) -> tuple[PartitionResult, PartitionImage | None]:
    """The answer, and the partition if it changes."""
    try:
        after = alter()
    except Refused as refusal:
        return PartitionResult(partition_index=data.partition_index, error_code=refusal.code), None
    changed = None if after is before else after
    if before is not None and after.leader_epoch != before.leader_epoch:
        # The change completed a reassignment: another replica leads now.
        code = ErrorCode.NEW_LEADER_ELECTED
        return PartitionResult(partition_index=data.partition_index, error_code=code), changed
    answer = PartitionResult(
        partition_index=data.partition_index,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery_state,
        partition_epoch=after.partition_epoch,
    )
    return answer, changed
