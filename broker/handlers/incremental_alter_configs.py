"""IncrementalAlterConfigs: change single settings: set, delete, append to a list, subtract from one (KIP-339).

Each resource is changed whole or not at all. The controller decides; other brokers forward the request to it.

v1: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.config_changes import alter_resources
from tidemark.broker.metadata.configs import ConfigOperation, alter_config
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handles(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, on_controller=True)
async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> IncrementalAlterConfigsResponse:
    def records(image: Image, resource: AlterConfigsResource) -> Sequence[Record]:
        changes = [(config.name, _operation(config.config_operation), config.value) for config in resource.configs]
        found = alter_config(image, resource.resource_type, resource.resource_name, changes, broker=settings.current)
        settings.require_usable(found)
        return found

    outcomes = await alter_resources(request.resources, store, records, validate_only=request.validate_only)
    answers = zip(request.resources, outcomes, strict=True)
    return IncrementalAlterConfigsResponse(responses=[_answer(resource, refusal) for resource, refusal in answers])


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
