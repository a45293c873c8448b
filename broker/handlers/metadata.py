"""Metadata: brokers, and topics with their partitions, by name or by id. A missing topic may be created on the way.

A broker that cannot reach the controller does not answer, and one without a lease does not name itself as leader:
clients that believed it would come back and be refused.

v0: an empty list of topics means all; from v1 on it means none, and null means all
v1: the controller, racks, internal topics
v2: the cluster's id (KIP-78)
v4: whether topics may be created (KIP-204)
v5: offline replicas (KIP-112)
v7: leader epochs (KIP-320)
v8: authorized operations (KIP-430); those of the cluster are gone from v11 (KIP-700)
v9: flexible (KIP-482)
v10: ids of topics in the answer; v12: topics asked for by id (KIP-516)
v13: an error of the whole answer (KIP-1102)
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from tidemark.broker.cluster.topic_creation import TopicCreation
from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.acl_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image, PartitionImage, TopicImage
from tidemark.broker.metadata.internal import INTERNAL_TOPICS
from tidemark.broker.metadata.topics import PARTITIONS_MAX_PER_REQUEST, check_topic_name
from tidemark.broker.quotas.service import Quotas
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidemark.protocol.schema import ZERO_UUID

log = logging.getLogger(__name__)

NULLABLE_NAMES_FROM: Final = 12

Create = Callable[[Sequence[str]], Awaitable[dict[str, Refused]]]


@handles(MetadataRequest, MetadataResponse)
def metadata(
    request: MetadataRequest,
    call: Call,
    *,
    cluster: ClusterView,
    settings: DynamicConfig,
    creation: TopicCreation,
    quotas: Quotas,
) -> Job[MetadataResponse | Awaitable[MetadataResponse]] | Awaitable[MetadataResponse]:
    def create(names: Sequence[str]) -> Awaitable[dict[str, Refused]]:
        return creation.create_all_automatically(names, quotas.mutation(call, strict_from=0).take)

    cluster.check_contact()
    if cluster.suspected_brokers:  # a broker has probably died: in a moment it is known which one leads in its place
        return _answer_soon(request, call, cluster, settings, create)
    return _answer_now(request, call, cluster, settings, create)


def _answer_now(
    request: MetadataRequest, call: Call, cluster: ClusterView, settings: DynamicConfig, create: Create
) -> Job[MetadataResponse | Awaitable[MetadataResponse]]:
    image = cluster.image
    wanted = request.topics
    if wanted is None or (call.version == 0 and not wanted):
        return (yield from _answer(request, call, cluster, _all(request, image)))
    if request.allow_auto_topic_creation and settings.current.auto_create_topics_enable:
        missing = yield from _missing(wanted, image)
        if len(missing) > PARTITIONS_MAX_PER_REQUEST:
            log.warning("a client names %d topics that do not exist: too many to create them", len(missing))
        elif missing:
            return _create_and_answer(request, call, cluster, create, missing)
    return (yield from _answer(request, call, cluster, _wanted(request, image, call.version)))


def _missing(wanted: Sequence[MetadataRequestTopic], image: Image) -> Job[list[str]]:
    missing: dict[str, None] = {}
    for topic in wanted:
        if topic.name is not None and topic.topic_id == ZERO_UUID and topic.name not in image.topics:
            missing[topic.name] = None
        yield
    return list(missing)


async def _answer_soon(
    request: MetadataRequest, call: Call, cluster: ClusterView, settings: DynamicConfig, create: Create
) -> MetadataResponse:
    if cluster.suspected_brokers is not None:
        await cluster.suspected_brokers.wait_until_none()
    answer = await finished(_answer_now(request, call, cluster, settings, create))
    return await answer if isinstance(answer, Awaitable) else answer


async def _create_and_answer(
    request: MetadataRequest, call: Call, cluster: ClusterView, create: Create, missing: Sequence[str]
) -> MetadataResponse:
    refused: dict[str, Refused] = {}
    try:
        refused = await create(missing)
    except Refused as refusal:
        # A client that is over its quota tries again, as with any topic that is not there yet.
        is_throttled = refusal.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        unknown = Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, refusal.message)
        refused = dict.fromkeys(missing, unknown if is_throttled else refusal)
    response = await finished(_answer(request, call, cluster, _wanted(request, cluster.image, call.version)))
    for topic in response.topics:
        if topic.name is not None and topic.name in refused:
            topic.error_code = refused[topic.name].code
    return response


def _all(request: MetadataRequest, image: Image) -> Job[list[MetadataResponseTopic]]:
    topics = []
    for topic in image.topics.values():
        topics.append((yield from _topic(topic, request, image)))
        yield
    return topics


def _wanted(request: MetadataRequest, image: Image, version: int) -> Job[list[MetadataResponseTopic]]:
    # As Kafka: a topic that is named again and again is answered once.
    asked_for: dict[tuple[bytes, str | None], MetadataRequestTopic] = {}
    for asked in request.topics or ():
        asked_for[asked.topic_id, asked.name] = asked
        yield
    topics = []
    for asked in asked_for.values():
        topics.append((yield from _one(asked, image, request, version)))
        yield
    return topics


def _one(
    asked: MetadataRequestTopic, image: Image, request: MetadataRequest, version: int
) -> Job[MetadataResponseTopic]:
    if asked.topic_id != ZERO_UUID:
        found = image.topic_by_id(asked.topic_id)
        if found is None:
            # Before version 12 the name cannot be null; Kafka answers an empty one there.
            name = None if version >= NULLABLE_NAMES_FROM else ""
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=asked.topic_id)
        return (yield from _topic(found, request, image))
    name = asked.name or ""
    found = image.topics.get(name)
    if found is not None:
        return (yield from _topic(found, request, image))
    missing = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)
    if request.include_topic_authorized_operations:
        missing.topic_authorized_operations = TOPIC_OPERATIONS
    try:
        check_topic_name(name)
    except Refused as refusal:
        missing.error_code = refusal.code
    return missing


def _topic(topic: TopicImage, request: MetadataRequest, image: Image) -> Job[MetadataResponseTopic]:
    answer = MetadataResponseTopic(name=topic.name, topic_id=topic.topic_id, is_internal=topic.name in INTERNAL_TOPICS)
    for index, partition in enumerate(topic.partitions):
        answer.partitions.append(_partition(index, partition, image))
        yield
    if request.include_topic_authorized_operations:
        answer.topic_authorized_operations = TOPIC_OPERATIONS
    return answer


def _partition(index: int, partition: PartitionImage, image: Image) -> MetadataResponsePartition:
    answer = MetadataResponsePartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
    )
    if partition.leader < 0:
        answer.error_code = ErrorCode.LEADER_NOT_AVAILABLE
    for node_id in partition.replicas:
        broker = image.brokers.get(node_id)
        if broker is None or broker.fenced:
            answer.offline_replicas.append(node_id)
    return answer


def _deny(topics: list[MetadataResponseTopic], node_id: int) -> None:
    """This node is cut off: another may lead its partitions, and clients that believed it would be refused."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.leader_id == node_id:
                partition.leader_id, partition.error_code = -1, ErrorCode.LEADER_NOT_AVAILABLE


def _answer(
    request: MetadataRequest, call: Call, cluster: ClusterView, made: Job[list[MetadataResponseTopic]]
) -> Job[MetadataResponse]:
    topics = yield from made
    if (unsure_of := cluster.unsure_of) is not None:
        _deny(topics, unsure_of)
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in cluster.brokers(call.connection.listener)
        ],
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
