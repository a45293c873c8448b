"""DescribeConfigs: the settings of topics, brokers and groups, and levels of loggers (KIP-412), each with its source.

Any broker describes a topic's settings, only a broker itself its own; an empty broker name asks for what is
set for the whole cluster. A sensitive value is never returned. Each resource gets an error of its own, and the others
are answered.

v1: sources and synonyms of a value (KIP-226), asked for by IncludeSynonyms
v3: type and documentation of a setting (KIP-569)
v4: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.config import (
    ConfigEntry,
    Source,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job, in_slices
from tidemark.broker.logs.levels import LogLevels
from tidemark.broker.metadata.dynamic_config import DynamicConfig, check_broker_name
from tidemark.broker.metadata.image import (
    BROKER_LOGGER_RESOURCE,
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
    request: DescribeConfigsRequest,
    _call: Call,
    *,
    cluster: ClusterView,
    settings: DynamicConfig,
    log_levels: LogLevels,
) -> Job[DescribeConfigsResponse]:
    image = cluster.image

    def configs(resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        names = set(resource.configuration_keys) if resource.configuration_keys else None
        if resource.resource_type == BROKER_LOGGER_RESOURCE:
            check_broker_name(resource.resource_name, settings)
            return [_level(name, level) for name, level in log_levels.describe(names).items()]
        return [_shown(entry, request) for entry in _entries(resource, image, settings, names)]

    results = yield from in_slices(lambda resource: _described(resource, configs), request.resources)
    return DescribeConfigsResponse(results=results)


def _described(
    resource: DescribeConfigsResource,
    configs: Callable[[DescribeConfigsResource], list[DescribeConfigsResourceResult]],
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        result.configs = configs(resource)
    except Refused as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
    return result


def _level(name: str, level: str) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(name=name, value=level, config_source=Source.DYNAMIC_BROKER_LOGGER_CONFIG)


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
        return describe_client_metrics(image.config_of(CLIENT_METRICS_RESOURCE, name), names=names)
    if resource.resource_type != BROKER_RESOURCE:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} have no settings here.")
    if name == CLUSTER_DEFAULT:
        return describe_cluster_default(dynamic_cluster=settings.dynamic_cluster, names=names)
    check_broker_name(name, settings)
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
