"""A whole request refused: the same error in every place that its answer has for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict

from tidemark.broker.core.errors import Refused
from tidemark.protocol.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)


class _Error(TypedDict):
    error_code: int
    error_message: str | None


def refusal_of(request: object, response: type[Any], refusal: Refused) -> object:
    make = _IN_EVERY_PLACE.get(type(request))
    if make is not None:
        return make(request, _Error(error_code=refusal.code, error_message=refusal.message))
    answer = response(error_code=refusal.code)
    if hasattr(answer, "error_message"):
        answer.error_message = refusal.message
    return answer


def _create_topics(request: create_topics.CreateTopicsRequest, error: _Error) -> create_topics.CreateTopicsResponse:
    results = [create_topics.CreatableTopicResult(name=topic.name, **error) for topic in request.topics]
    return create_topics.CreateTopicsResponse(topics=results)


def _delete_topics(request: delete_topics.DeleteTopicsRequest, error: _Error) -> delete_topics.DeleteTopicsResponse:
    wanted = request.topics or [delete_topics.DeleteTopicState(name=name) for name in request.topic_names]
    results = [delete_topics.DeletableTopicResult(name=each.name, topic_id=each.topic_id, **error) for each in wanted]
    return delete_topics.DeleteTopicsResponse(responses=results)


def _create_partitions(
    request: create_partitions.CreatePartitionsRequest, error: _Error
) -> create_partitions.CreatePartitionsResponse:
    results = [create_partitions.CreatePartitionsTopicResult(name=topic.name, **error) for topic in request.topics]
    return create_partitions.CreatePartitionsResponse(results=results)


def _alter_configs(request: alter_configs.AlterConfigsRequest, error: _Error) -> alter_configs.AlterConfigsResponse:
    results = [
        alter_configs.AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name, **error
        )
        for each in request.resources
    ]
    return alter_configs.AlterConfigsResponse(responses=results)


def _incremental(
    request: incremental_alter_configs.IncrementalAlterConfigsRequest, error: _Error
) -> incremental_alter_configs.IncrementalAlterConfigsResponse:
    results = [
        incremental_alter_configs.AlterConfigsResourceResponse(
            resource_type=each.resource_type, resource_name=each.resource_name, **error
        )
        for each in request.resources
    ]
    return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=results)


_IN_EVERY_PLACE: Final[Mapping[type[Any], Callable[[Any, _Error], object]]] = {
    create_topics.CreateTopicsRequest: _create_topics,
    delete_topics.DeleteTopicsRequest: _delete_topics,
    create_partitions.CreatePartitionsRequest: _create_partitions,
    alter_configs.AlterConfigsRequest: _alter_configs,
    incremental_alter_configs.IncrementalAlterConfigsRequest: _incremental,
}
