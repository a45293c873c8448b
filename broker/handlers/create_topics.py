"""CreateTopics: all topics of a request are created in one commit; a refused one does not hold up the others.

A topic that is named twice in a request is refused. Replicas are placed by rack unless the request assigns them.
ValidateOnly checks everything and creates nothing. The controller decides; other brokers forward the request to it.

v4: -1 partitions or replicas take the broker's defaults (KIP-464)
v5: the answer has partitions, replication factor and settings (KIP-525); flexible (KIP-482)
v6: the client may be throttled by THROTTLING_QUOTA_EXCEEDED (KIP-599)
v7: the answer has the topic's id (KIP-516)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.cluster.topic_creation import TopicCreation, new_topic_id
from tidemark.broker.config import describe_topic
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import find_repeated
from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.core.time_slice import TimeSlice
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image
from tidemark.broker.metadata.topics import NewTopic, check_partitions_of_request
from tidemark.broker.quotas.service import Quotas
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

DETAILS_FROM: Final = 5  # KIP-525
THROTTLED_BY_ERROR_FROM: Final = 6  # KIP-599


@handles(CreateTopicsRequest, CreateTopicsResponse, on_controller=True)
async def create_topics(
    request: CreateTopicsRequest, call: Call, *, creation: TopicCreation, settings: DynamicConfig, quotas: Quotas
) -> CreateTopicsResponse:
    quota = quotas.mutation(call, strict_from=THROTTLED_BY_ERROR_FROM)
    time_slice = TimeSlice()
    twice = await finished(find_repeated(topic.name for topic in request.topics))
    try:
        check_partitions_of_request(await finished(_count_partitions(request, twice, settings)))
    except Refused as too_many:
        return await finished(_refuse_all(request, twice, too_many))
    new_topics, refused = [], {}
    for topic in request.topics:
        try:
            if topic.name not in twice:
                new_topics.append(_new_topic(topic))
        except Refused as refusal:
            refused[topic.name] = refusal
        await time_slice.pause()
    refused |= dict.fromkeys(twice, _named_twice())
    create = creation.check if request.validate_only else creation.create
    outcome, image = await create(new_topics, quota.take)
    refused |= outcome
    response = CreateTopicsResponse()
    described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    for name in dict.fromkeys(topic.name for topic in request.topics):
        if name in refused:
            response.topics.append(_refused_topic(name, refused[name]))
            await time_slice.pause()
            continue
        made = image.topics[name]
        response.topics.append(
            CreatableTopicResult(
                name=name,
                topic_id=made.topic_id,
                num_partitions=len(made.partitions),
                replication_factor=len(made.partitions[0].replicas),
                configs=_configs(image, name, settings, described) if call.version >= DETAILS_FROM else [],
            )
        )
        await time_slice.pause()
    response.throttle_time_ms = quota.throttle_time_ms
    return response


def _named_twice() -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")


def _count_partitions(request: CreateTopicsRequest, twice: set[str], settings: DynamicConfig) -> Job[int]:
    """Of all topics together: the request is refused for too many of them before anything is made for one."""
    count = 0
    for topic in request.topics:
        if topic.name not in twice:
            wanted = topic.num_partitions if topic.num_partitions > 0 else settings.current.num_partitions
            count += len(topic.assignments) or wanted
        yield
    return count


def _refuse_all(request: CreateTopicsRequest, twice: set[str], too_many: Refused) -> Job[CreateTopicsResponse]:
    response = CreateTopicsResponse()
    told: set[str] = set()
    for topic in request.topics:
        if topic.name not in told:
            response.topics.append(_refused_topic(topic.name, _named_twice() if topic.name in twice else too_many))
            told.add(topic.name)
        yield
    return response


def _new_topic(topic: CreatableTopic) -> NewTopic:
    configs = {}
    for config in topic.configs:
        if config.value is None:
            raise Refused(ErrorCode.INVALID_CONFIG, f"The setting {config.name} has no value.")
        configs[config.name] = config.value
    return NewTopic(
        name=topic.name,
        topic_id=new_topic_id(),
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(each.partition_index, each.broker_ids) for each in topic.assignments],
        configs=configs,
    )


def _refused_topic(name: str, refusal: Refused) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _configs(
    image: Image,
    name: str,
    settings: DynamicConfig,
    described: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]],
) -> list[CreatableTopicConfigs]:
    """Thirty settings; topics with the same overrides, most often none, have the same, and share them in the answer."""
    overrides = image.config_of(TOPIC_RESOURCE, name)
    key = frozenset(overrides.items())
    if key not in described:
        entries = describe_topic(
            settings.static,
            dynamic_cluster=settings.dynamic_cluster,
            dynamic_broker=settings.dynamic_broker,
            topic_overrides=overrides,
        )
        described[key] = [
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ]
    return described[key]
