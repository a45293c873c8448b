"""CreateTopics, DeleteTopics, CreatePartitions: each request is one commit to the metadata log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

from tidemark.broker.cluster.topic_creation import TopicCreation, new_topic_id
from tidemark.broker.config import describe_topic
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image, TopicImage
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metadata.topics import NewTopic, add_partitions, delete_topic
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tidemark.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tidemark.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidemark.protocol.schema import ZERO_UUID

T = TypeVar("T")


@handles(CreateTopicsRequest, CreateTopicsResponse, on_controller=True)
async def create_topics(
    request: CreateTopicsRequest, call: Call, *, creation: TopicCreation, settings: DynamicConfig
) -> CreateTopicsResponse:
    repeated = _repeated([topic.name for topic in request.topics])
    wishes, refused = [], {}
    for topic in request.topics:
        try:
            if topic.name not in repeated:
                wishes.append(_wish(topic))
        except Refused as refusal:
            refused[topic.name] = refusal
    refused |= dict.fromkeys(repeated, Refused(ErrorCode.INVALID_REQUEST, "The topic is in the request twice."))
    outcome, image = creation.check(wishes) if request.validate_only else await creation.create(wishes)
    refused |= outcome
    names = dict.fromkeys(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=[
            _refused_topic(name, refused[name])
            if name in refused
            else _created_topic(image, name, settings, validate_only=request.validate_only)
            for name in names
        ]
    )


def _repeated(names: Sequence[T]) -> set[T]:
    return {name for name, count in Counter(names).items() if count > 1}


def _wish(topic: CreatableTopic) -> NewTopic:
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


def _created_topic(image: Image, name: str, settings: DynamicConfig, *, validate_only: bool) -> CreatableTopicResult:
    topic = image.topics[name]
    entries = describe_topic(
        settings.static,
        dynamic_cluster=settings.dynamic_cluster,
        dynamic_broker=settings.dynamic_broker,
        topic_overrides=image.config_of(TOPIC_RESOURCE, name),
    )
    return CreatableTopicResult(
        name=name,
        topic_id=ZERO_UUID if validate_only else topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=None if entry.sensitive else entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in entries
        ],
    )


@handles(DeleteTopicsRequest, DeleteTopicsResponse, on_controller=True)
async def delete_topics(
    request: DeleteTopicsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> DeleteTopicsResponse:
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    names = _repeated([state.name for state in wanted if state.name is not None])
    ids = _repeated([state.topic_id for state in wanted if state.topic_id != ZERO_UUID])
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}

    def decide(image: Image) -> list[Record]:
        records: list[Record] = []
        gone: set[str] = set()
        for state in wanted:
            result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
            results[state.name, state.topic_id] = result
            try:
                if state.name in names or state.topic_id in ids:
                    raise Refused(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")
                topic = _topic_to_delete(image, state, settings)
                if topic.name in gone:  # once by its name and once by its id
                    raise Refused(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
                continue
            gone.add(topic.name)
            result.name, result.topic_id = topic.name, topic.topic_id
            records += delete_topic(topic)
        return records

    await store.change(decide)
    return DeleteTopicsResponse(responses=list(results.values()))


def _topic_to_delete(image: Image, state: DeleteTopicState, settings: DynamicConfig) -> TopicImage:
    if not settings.current.delete_topic_enable:
        raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false.")
    if state.topic_id != ZERO_UUID:
        if state.name is not None:
            raise Refused(ErrorCode.INVALID_REQUEST, "Either the name or the id of a topic is given, not both.")
        topic = image.topic_by_id(state.topic_id)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id.")
        return topic
    if state.name is None:
        raise Refused(ErrorCode.INVALID_REQUEST, "Neither the name nor the id of the topic is given.")
    return _existing(image, state.name)


def _existing(image: Image, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return topic


@handles(CreatePartitionsRequest, CreatePartitionsResponse, on_controller=True)
async def create_partitions(
    request: CreatePartitionsRequest, _call: Call, *, store: MetadataStore
) -> CreatePartitionsResponse:
    repeated = _repeated([topic.name for topic in request.topics])
    results: dict[str, CreatePartitionsTopicResult] = {}

    def decide(image: Image) -> list[Record]:
        records: list[Record] = []
        for topic in request.topics:
            result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name)
            try:
                if topic.name in repeated:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"The topic '{topic.name}' is in the request twice.")
                records += _add(image, topic)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
        return [] if request.validate_only else records

    await store.change(decide)
    return CreatePartitionsResponse(results=list(results.values()))


def _add(image: Image, topic: CreatePartitionsTopic) -> list[Record]:
    assignments = None if topic.assignments is None else [each.broker_ids for each in topic.assignments]
    return add_partitions(image, _existing(image, topic.name), count=topic.count, assignments=assignments)
