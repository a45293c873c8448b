"""IncrementalAlterConfigs: change single settings: set, delete, append to a list, subtract from one (KIP-339).

Each resource is changed whole or not at all. The controller decides; other brokers forward the request to it. Levels of
loggers (KIP-412) are not metadata: the broker that they are of changes them itself, and forgets them when it stops.

v1: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import finished
from tidemark.broker.logs.levels import LogLevels
from tidemark.broker.metadata.config_changes import alter_resources, answers, decided
from tidemark.broker.metadata.configs import ConfigOperation, alter_config
from tidemark.broker.metadata.dynamic_config import DynamicConfig, check_broker_name
from tidemark.broker.metadata.image import BROKER_LOGGER_RESOURCE, Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def _is_about_loggers(request: IncrementalAlterConfigsRequest) -> bool:
    resources = request.resources
    return bool(resources) and all(each.resource_type == BROKER_LOGGER_RESOURCE for each in resources)


@handles(
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    on_controller=True,
    stays_here=_is_about_loggers,
)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest,
    _call: Call,
    *,
    store: MetadataStore,
    settings: DynamicConfig,
    log_levels: LogLevels,
) -> IncrementalAlterConfigsResponse:
    levels: list[tuple[str, str | None]] = []

    def records(image: Image, resource: AlterConfigsResource) -> Sequence[Record]:
        if resource.resource_type == BROKER_LOGGER_RESOURCE:
            wanted = _wanted_levels(resource, settings)
            log_levels.check(wanted)
            levels.extend(wanted)
            return []
        changes = [(config.name, _operation(config.config_operation), config.value) for config in resource.configs]
        found = alter_config(image, resource.resource_type, resource.resource_name, changes, broker=settings.current)
        settings.require_usable(found)
        return found

    outcomes: list[Refused | None] = []
    if _is_about_loggers(request):
        await finished(decided(request.resources, lambda resource: records(store.image, resource), outcomes))
    else:
        outcomes = await alter_resources(request.resources, store, records, validate_only=request.validate_only)
    if levels and not request.validate_only:
        log_levels.change(levels)
    return IncrementalAlterConfigsResponse(responses=await finished(answers(request.resources, outcomes, _answer)))


def _wanted_levels(resource: AlterConfigsResource, settings: DynamicConfig) -> list[tuple[str, str | None]]:
    check_broker_name(resource.resource_name, settings)
    wanted: list[tuple[str, str | None]] = []
    for config in resource.configs:
        operation = _operation(config.config_operation)
        if operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise Refused(ErrorCode.INVALID_REQUEST, f"{operation.name} does not go with the level of a logger.")
        if operation is ConfigOperation.SET and config.value is None:
            raise Refused(ErrorCode.INVALID_REQUEST, f"The level of {config.name} has no value.")
        wanted.append((config.name, config.value if operation is ConfigOperation.SET else None))
    return wanted


def _operation(code: int) -> ConfigOperation:
    try:
        return ConfigOperation(code)
    except ValueError:
        raise Refused(ErrorCode.INVALID_REQUEST, f"There is no config operation {code}.") from None


def _answer(resource: AlterConfigsResource, refusal: Refused | None) -> AlterConfigsResourceResponse:
    answer = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if refusal is not None:
        answer.error_code, answer.error_message = refusal.code, refusal.message
    return answer
