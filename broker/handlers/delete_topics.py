"""DeleteTopics: all topics of a request go in one commit; a refused one does not hold up the others.

A topic that is named twice, by name or id, is refused. With delete.topic.enable=false all are. The controller
decides; other brokers forward the request to it.

v4: flexible (KIP-482)
v5: error messages (KIP-599)
v6: topics by id (KIP-516)
"""

from __future__ import annotations

from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import find_repeated
from tidemark.broker.core.sliced_work import Job, finished
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image, TopicImage
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metadata.topics import delete_topic, existing_topic
from tidemark.broker.quotas.service import Quotas
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidemark.protocol.schema import ZERO_UUID

THROTTLED_BY_ERROR_FROM: Final = 5  # KIP-599


@handles(DeleteTopicsRequest, DeleteTopicsResponse, on_controller=True)
async def delete_topics(
    request: DeleteTopicsRequest, call: Call, *, store: MetadataStore, settings: DynamicConfig, quotas: Quotas
) -> DeleteTopicsResponse:
    quota = quotas.mutation(call, strict_from=THROTTLED_BY_ERROR_FROM)
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    names = await finished(find_repeated(state.name for state in wanted if state.name is not None))
    ids = await finished(find_repeated(state.topic_id for state in wanted if state.topic_id != ZERO_UUID))
    results: dict[tuple[str | None, bytes], DeletableTopicResult] = {}

    def decide(image: Image) -> Job[list[Record]]:
        records: list[Record] = []
        gone: set[str] = set()
        for state in wanted:
            yield
            result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
            results[state.name, state.topic_id] = result
            try:
                if state.name in names or state.topic_id in ids:
                    raise Refused(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")
                topic = _topic_to_delete(image, state, settings)
                if topic.name in gone:  # once by its name and once by its id
                    raise Refused(ErrorCode.INVALID_REQUEST, "The topic is in the request twice.")
                quota.take(len(topic.partitions))
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
                continue
            gone.add(topic.name)
            result.name, result.topic_id = topic.name, topic.topic_id
            records += delete_topic(topic)
        return records

    await store.change(decide)
    return DeleteTopicsResponse(responses=list(results.values()), throttle_time_ms=quota.throttle_time_ms)


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
    return existing_topic(image, state.name)
