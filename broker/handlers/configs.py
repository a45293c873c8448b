"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources: settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

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
from tidemark.broker.metadata.configs import Operation, alter_config, replace_config, resource_label
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import BROKER_RESOURCE, CLUSTER_DEFAULT, GROUP_RESOURCE, TOPIC_RESOURCE, Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.metadata.topics import check_topic_name
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages import alter_configs as full
from tidemark.protocol.messages import incremental_alter_configs as incremental
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidemark.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

CLIENT_METRICS_RESOURCE: Final = 16
LISTED_RESOURCES: Final = (TOPIC_RESOURCE, BROKER_RESOURCE, GROUP_RESOURCE)


@handles(DescribeConfigsRequest, DescribeConfigsResponse)
def describe_configs(
    request: DescribeConfigsRequest, _call: Call, *, cluster: ClusterView, settings: DynamicConfig
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[_describe(resource, request, cluster.image, settings) for resource in request.resources]
    )


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


@handles(full.AlterConfigsRequest, full.AlterConfigsResponse, on_controller=True)
async def alter_configs(
    request: full.AlterConfigsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> full.AlterConfigsResponse:
    def records(image: Image, resource: full.AlterConfigsResource) -> Sequence[Record]:
        values = {config.name: config.value for config in resource.configs}
        _refuse_repeated(resource.configs)
        return replace_config(image, resource.resource_type, resource.resource_name, values, broker=settings.current)

    results = await _alter_all(request, store, records, full.AlterConfigsResourceResponse)
    return full.AlterConfigsResponse(responses=results)


@handles(incremental.IncrementalAlterConfigsRequest, incremental.IncrementalAlterConfigsResponse, on_controller=True)
async def incremental_alter_configs(
    request: incremental.IncrementalAlterConfigsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> incremental.IncrementalAlterConfigsResponse:
    def records(image: Image, resource: incremental.AlterConfigsResource) -> Sequence[Record]:
        _refuse_repeated(resource.configs)
        changes = [(config.name, _operation(config.config_operation), config.value) for config in resource.configs]
        return alter_config(image, resource.resource_type, resource.resource_name, changes, broker=settings.current)

    results = await _alter_all(request, store, records, incremental.AlterConfigsResourceResponse)
    return incremental.IncrementalAlterConfigsResponse(responses=results)


def _operation(code: int) -> Operation:
    try:
        return Operation(code)
    except ValueError:
        raise Refused(ErrorCode.INVALID_REQUEST, f"There is no config operation {code}.") from None


def _refuse_repeated(configs: Sequence[Any]) -> None:
    if len({config.name for config in configs}) != len(configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "A setting is in the request twice.")


async def _alter_all(
    request: Any, store: MetadataStore, records: Callable[[Image, Any], Sequence[Record]], result_type: type[Any]
) -> list[Any]:
    """Each resource is changed whole or not at all; a refused one does not hold up the others."""
    results: list[Any] = []
    seen: set[tuple[int, str]] = set()

    def decide(image: Image) -> list[Record]:
        committed: list[Record] = []
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            result = result_type(resource_type=key[0], resource_name=key[1])
            results.append(result)
            try:
                if key in seen:
                    raise Refused(ErrorCode.INVALID_REQUEST, f"{resource_label(*key)} is in the request twice.")
                seen.add(key)
                committed += records(image, resource)
            except Refused as refusal:
                result.error_code, result.error_message = refusal.code, refusal.message
        return [] if request.validate_only else committed

    await store.change(decide)
    return results


@handles(ListConfigResourcesRequest, ListConfigResourcesResponse)
def list_config_resources(
    request: ListConfigResourcesRequest, call: Call, *, cluster: ClusterView
) -> ListConfigResourcesResponse:
    if call.version == 0:  # it was ListClientMetricsResources then, and there are none
        return ListConfigResourcesResponse()
    image = cluster.image
    wanted = set(request.resource_types) or set(LISTED_RESOURCES)
    if wanted - {*LISTED_RESOURCES, 8, CLIENT_METRICS_RESOURCE}:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    names: list[tuple[int, str]] = []
    if TOPIC_RESOURCE in wanted:
        names += [(TOPIC_RESOURCE, name) for name in image.topics]
    if BROKER_RESOURCE in wanted:
        names += [(BROKER_RESOURCE, str(broker_id)) for broker_id in image.brokers]
    if GROUP_RESOURCE in wanted:
        names += [(kind, name) for kind, name in image.configs if kind == GROUP_RESOURCE]
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(resource_type=kind, resource_name=name) for kind, name in names]
    )
