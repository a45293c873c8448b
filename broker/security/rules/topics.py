"""APIs about topics. A topic that a client may not describe is TOPIC_AUTHORIZATION_FAILED, whether it exists or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tidemark.broker.core.acl import AclOperation, ResourceType
from tidemark.broker.core.errors import CloseConnection
from tidemark.broker.core.registry import Call
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.replication.validation import TRANSACTIONAL
from tidemark.broker.security.access import TEXT, Access
from tidemark.broker.security.rule import Narrowed, Rule, Verdict, adding, each, narrow, split, topic_name
from tidemark.broker.security.rules.cluster import cluster_operations
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages import fetch as fetching
from tidemark.protocol.messages import list_offsets, offset_for_leader_epoch
from tidemark.protocol.messages.create_partitions import CreatePartitionsTopicResult
from tidemark.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.protocol.messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from tidemark.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidemark.protocol.messages.describe_producers import PartitionResponse, TopicResponse
from tidemark.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from tidemark.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tidemark.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tidemark.protocol.schema import ZERO_UUID

FAILED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TRANSACTION_FAILED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
ATTRIBUTES_AT: Final = 22  # the lower byte of a batch's attributes
NULLABLE_NAMES_FROM: Final = 12  # of Metadata


def _named(operation: AclOperation) -> Callable[[Access, Any], bool]:
    return lambda access, topic: access.topic(operation, topic.name)


# -- records -------------------------------------------------------------


def produce(request: ProduceRequest, access: Access, _call: Call) -> Job[Verdict]:
    transactional_id = request.transactional_id
    if _is_transactional(request) and not (
        transactional_id is not None and access.transactional_id(AclOperation.WRITE, transactional_id)
    ):
        answer = ProduceResponse(responses=[_unproduced(topic, TRANSACTION_FAILED) for topic in request.topic_data])
        return _unless_silent(request, answer)
    narrowed = yield from narrow(
        request,
        access,
        lambda topic: (name := topic_name(topic, access)) is None or access.topic(AclOperation.WRITE, name),
        partial(_unproduced, code=FAILED),
        asked="topic_data",
        answered="responses",
    )
    return narrowed if narrowed is None else _unless_silent(request, narrowed)


def _is_transactional(request: ProduceRequest) -> bool:
    """As Kafka, by the batches: the id alone touches no transaction."""
    return any(
        len(data.records or b"") > ATTRIBUTES_AT and data.records[ATTRIBUTES_AT] & TRANSACTIONAL  # type: ignore[index]
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _unproduced(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    results = [
        PartitionProduceResponse(index=each.index, base_offset=-1, error_code=code) for each in topic.partition_data
    ]
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)


def _unless_silent(request: ProduceRequest, answer: Verdict) -> Verdict:
    """With acks=0 there is no answer to carry a refusal: as Kafka, we hang up, so that the client notices."""
    if request.acks == 0:
        raise CloseConnection("a produce request with acks=0 was not allowed")
    return answer


def fetch(request: fetching.FetchRequest, access: Access, _call: Call) -> Verdict:
    """What replicas fetch. For consumers it is asked where a session's partitions are known (`Guard.may_read`)."""
    if request.replica_state.replica_id < 0 or access.cluster(AclOperation.CLUSTER_ACTION):
        return None
    return fetching.FetchResponse(responses=[_unfetched(topic) for topic in request.topics])


def _unfetched(topic: fetching.FetchTopic) -> fetching.FetchableTopicResponse:
    partitions = [
        fetching.PartitionData(
            partition_index=each.partition, error_code=FAILED, high_watermark=-1, aborted_transactions=None, records=b""
        )
        for each in topic.partitions
    ]
    return fetching.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)


def _unlisted(topic: list_offsets.ListOffsetsTopic) -> list_offsets.ListOffsetsTopicResponse:
    partitions = [
        list_offsets.ListOffsetsPartitionResponse(partition_index=each.partition_index, error_code=FAILED)
        for each in topic.partitions
    ]
    return list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _without_epoch(
    topic: offset_for_leader_epoch.OffsetForLeaderTopic,
) -> offset_for_leader_epoch.OffsetForLeaderTopicResult:
    partitions = [
        offset_for_leader_epoch.EpochEndOffset(partition=each.partition, error_code=FAILED) for each in topic.partitions
    ]
    return offset_for_leader_epoch.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)


def _may_know_epochs(access: Access, topic: offset_for_leader_epoch.OffsetForLeaderTopic) -> bool:
    """Replicas asked first, with a right on the cluster; consumers came later (KIP-320)."""
    return access.cluster(AclOperation.CLUSTER_ACTION, quietly=True) or access.topic(AclOperation.DESCRIBE, topic.topic)


def _undeleted(topic: Any) -> DeleteRecordsTopicResult:
    partitions = [
        DeleteRecordsPartitionResult(partition_index=each.partition_index, low_watermark=-1, error_code=FAILED)
        for each in topic.partitions
    ]
    return DeleteRecordsTopicResult(name=topic.name, partitions=partitions)


def _without_producers(topic: Any) -> TopicResponse:
    partitions = [
        PartitionResponse(partition_index=index, error_code=FAILED, error_message=TEXT[FAILED])
        for index in topic.partition_indexes
    ]
    return TopicResponse(name=topic.name, partitions=partitions)


# -- metadata ------------------------------------------------------------


def metadata(request: MetadataRequest, access: Access, call: Call) -> Job[Verdict]:
    asked_all = request.topics is None or (call.version == 0 and not request.topics)
    if asked_all:
        return Narrowed(request, lambda response: _hide_topics(response, access))
    allowed, denied = yield from split(request.topics or (), lambda topic: _may_describe(topic, request, access))
    refusals = yield from in_slices(lambda topic: _undescribed(topic, call.version), denied)
    request.topics = allowed
    return Narrowed(request, lambda response: _complete_metadata(response, access, refusals, bool(allowed)))


def _may_describe(topic: MetadataRequestTopic, request: MetadataRequest, access: Access) -> bool:
    name = topic.name or ""
    if topic.topic_id != ZERO_UUID:
        known = access.image.topic_names.get(topic.topic_id)
        return known is None or access.topic(AclOperation.DESCRIBE, known)
    if not access.topic(AclOperation.DESCRIBE, name):
        return False
    creates = request.allow_auto_topic_creation and access.config.auto_create_topics_enable
    return name in access.image.topics or not creates or _may_create(access, name)


def _may_create(access: Access, name: str) -> bool:
    return access.cluster(AclOperation.CREATE, quietly=True) or access.topic(AclOperation.CREATE, name)


def _undescribed(topic: MetadataRequestTopic, version: int) -> MetadataResponseTopic:
    """No more than the client knows already."""
    name = topic.name if topic.topic_id == ZERO_UUID else (None if version >= NULLABLE_NAMES_FROM else "")
    return MetadataResponseTopic(error_code=FAILED, name=name, topic_id=topic.topic_id)


def _hide_topics(response: MetadataResponse, access: Access) -> Job[None]:
    shown = []
    for topic in response.topics:
        if access.topic(AclOperation.DESCRIBE, topic.name or "", quietly=True):
            shown.append(topic)
        yield
    response.topics = shown
    yield from _operations(response, access)


def _complete_metadata(
    response: MetadataResponse, access: Access, refusals: list[MetadataResponseTopic], asked_any: bool
) -> Job[None]:
    if not asked_any:
        response.topics = []  # in version 0 an empty request was answered with everything
    yield from _operations(response, access)
    response.topics += refusals


def _operations(response: MetadataResponse, access: Access) -> Job[None]:
    for topic in response.topics:
        mask = topic.topic_authorized_operations
        topic.topic_authorized_operations = access.of(mask, ResourceType.TOPIC, topic.name or "")
        yield
    yield from cluster_operations(response, access)


def describe_topic_partitions(request: DescribeTopicPartitionsRequest, access: Access, _call: Call) -> Job[Verdict]:
    names = [topic.name for topic in request.topics] or list(access.image.topics)
    quietly = not request.topics
    allowed, denied = yield from split(names, lambda name: access.topic(AclOperation.DESCRIBE, name, quietly=quietly))
    refusals = (
        [] if quietly else [DescribeTopicPartitionsResponseTopic(name=name, error_code=FAILED) for name in denied]
    )
    if not allowed:
        return DescribeTopicPartitionsResponse(topics=refusals)
    if denied:
        request.topics = [TopicRequest(name=name) for name in allowed]
        if quietly and request.cursor is not None and request.cursor.topic_name not in allowed:
            request.topics = [topic for topic in request.topics if topic.name > request.cursor.topic_name]
            request.cursor = None
    return Narrowed(request, lambda response: _complete_partitions(response, access, refusals))


def _complete_partitions(
    response: DescribeTopicPartitionsResponse,
    access: Access,
    refusals: list[DescribeTopicPartitionsResponseTopic],
) -> Job[None]:
    for topic in response.topics:
        mask = topic.topic_authorized_operations
        topic.topic_authorized_operations = access.of(mask, ResourceType.TOPIC, topic.name or "")
        yield
    response.topics += refusals


# -- creating and deleting -----------------------------------------------


def create_topics(request: CreateTopicsRequest, access: Access, _call: Call) -> Job[Verdict]:
    may_create_any = access.cluster(AclOperation.CREATE, quietly=True)
    allowed, denied = yield from split(
        request.topics, lambda topic: may_create_any or access.topic(AclOperation.CREATE, topic.name)
    )
    refusals = [
        CreatableTopicResult(name=topic.name, error_code=FAILED, error_message=TEXT[FAILED]) for topic in denied
    ]
    if not allowed:
        return CreateTopicsResponse(topics=refusals)
    request.topics = allowed
    return Narrowed(request, lambda response: _complete_creation(response, access, refusals))


def _complete_creation(
    response: CreateTopicsResponse, access: Access, refusals: list[CreatableTopicResult]
) -> Job[None]:
    """Who may create a topic need not know its settings (KIP-525)."""
    for topic in response.topics:
        if not topic.error_code and not access.topic(AclOperation.DESCRIBE_CONFIGS, topic.name, quietly=True):
            topic.topic_config_error_code = FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        yield
    response.topics += refusals


def delete_topics(request: DeleteTopicsRequest, access: Access, _call: Call) -> Job[Verdict]:
    """A topic that the client may describe, and that is not there, is unknown; and the name of one that is asked for by
    its id is told only if the client may describe it."""
    by_name = not request.topics
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    refusals = []
    allowed = []
    for state in wanted:
        yield
        name = topic_name(state, access)
        may_describe = name is not None and access.topic(AclOperation.DESCRIBE, name, quietly=True)
        is_unknown = may_describe and name not in access.image.topics
        if name is None or access.topic(AclOperation.DELETE, name, quietly=is_unknown):
            allowed.append(state)
        elif is_unknown:  # not for the handler to say: it may be there by then
            refusals.append(
                DeletableTopicResult(name=name, error_code=UNKNOWN, error_message=f"There is no topic '{name}'.")
            )
        else:
            is_shown = may_describe or state.topic_id == ZERO_UUID
            refusals.append(
                DeletableTopicResult(
                    name=name if is_shown else None,
                    topic_id=state.topic_id,
                    error_code=FAILED,
                    error_message=TEXT[FAILED],
                )
            )
    if not refusals:
        return None
    if not allowed:
        return DeleteTopicsResponse(responses=refusals)
    if by_name:
        request.topic_names = [state.name or "" for state in allowed]
    else:
        request.topics = allowed
    return Narrowed(request, adding("responses", refusals))


RULES: Final[Mapping[str, Rule]] = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": each(_named(AclOperation.DESCRIBE), _unlisted),
    "OffsetForLeaderEpoch": each(_may_know_epochs, _without_epoch),
    "DeleteRecords": each(_named(AclOperation.DELETE), _undeleted),
    "DescribeProducers": each(_named(AclOperation.READ), _without_producers),
    "Metadata": metadata,
    "DescribeTopicPartitions": describe_topic_partitions,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "CreatePartitions": each(
        _named(AclOperation.ALTER),
        lambda topic: CreatePartitionsTopicResult(name=topic.name, error_code=FAILED, error_message=TEXT[FAILED]),
        answered="results",
    ),
}
