"""DescribeConfigs: the settings of topics, brokers and groups, each with where its value comes from.

Any broker describes a topic's settings, only a broker itself its own; an empty broker name asks for what is
set for the whole cluster. A sensitive value is never returned. Each resource gets an error of its own, and the others
are answered.

v1: sources and synonyms of a value (KIP-226), asked for by IncludeSynonyms
v3: type and documentation of a setting (KIP-569)
v4: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Collection

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.config import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    CLUSTER_DEFAULT,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    Image,
)
from tidemark.broker.metadata.topics import check_topic_name
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@handles(DescribeConfigsRequest, DescribeConfigsResponse)
def describe_configs(
    request: DescribeConfigsRequest, _call: Call, *, cluster: ClusterView, settings: DynamicConfig
) -> Job[DescribeConfigsResponse]:
    image = cluster.image
    results = yield from in_slices(lambda resource: _describe(resource, request, image, settings), request.resources)
    return DescribeConfigsResponse(results=results)


def _describe(
    resource: DescribeConfigsResource, request: DescribeConfigsRequest, image: Image, settings: DynamicConfig
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    names = resource.configuration_keys
    try:
        entries = _entries(resource, image, settings, set(names) if names else None)
    except Refused as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
        return result
    result.configs = [_shown(entry, request) for entry in entries]
    return result


def _entries(
    resource: DescribeConfigsResource, image: Image, settings: DynamicConfig, names: Collection[str] | None
) -> list[ConfigEntry]:
    name = resource.resource_name
    if resource.resource_type == TOPIC_RESOURCE:
        if name not in image.topics:
            check_topic_name(name)
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
        return describe_topic(
            settings.static,
            dynamic_cluster=settings.dynamic_cluster,
            dynamic_broker=settings.dynamic_broker,
            topic_overrides=image.config_of(TOPIC_RESOURCE, name),
            names=names,
        )
    if resource.resource_type == GROUP_RESOURCE:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "A group has no empty name.")
        return describe_group(
            settings.static,
            dynamic_cluster=settings.dynamic_cluster,
            dynamic_broker=settings.dynamic_broker,
            group_overrides=image.config_of(GROUP_RESOURCE, name),
            names=names,
        )
    if resource.resource_type == CLIENT_METRICS_RESOURCE:
        if not name:
            raise Refused(ErrorCode.INVALID_REQUEST, "A client metrics subscription has no empty name.")
        return []  # there are no subscriptions
    if resource.resource_type != BROKER_RESOURCE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} have no settings here.")
    if name == CLUSTER_DEFAULT:
        return describe_cluster_default(dynamic_cluster=settings.dynamic_cluster, names=names)
    if name != str(settings.static.node_id):
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"Broker {name!r} was asked for, but this is broker {settings.static.node_id}."
        )
    return describe_broker(
        settings.static,
        dynamic_cluster=settings.dynamic_cluster,
        dynamic_broker=settings.dynamic_broker,
        names=names,
    )


def _shown(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source) for each in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )
