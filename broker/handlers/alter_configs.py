"""AlterConfigs: replace all settings of a resource; what is not named goes back to its default.

Kept for older tools: two of them overwrite each other's changes, so that IncrementalAlterConfigs took its place
(KIP-339). Each resource is changed whole or not at all. The controller decides; other brokers forward the request to
it.

v1: the answer may say how long the client was throttled (KIP-219)
v2: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import finished
from tidemark.broker.metadata.config_changes import alter_resources, answers
from tidemark.broker.metadata.configs import replace_config
from tidemark.broker.metadata.dynamic_config import DynamicConfig
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handles(AlterConfigsRequest, AlterConfigsResponse, on_controller=True)
async def alter_configs(
    request: AlterConfigsRequest, _call: Call, *, store: MetadataStore, settings: DynamicConfig
) -> AlterConfigsResponse:
    def records(image: Image, resource: AlterConfigsResource) -> Sequence[Record]:
        values = {config.name: config.value for config in resource.configs}
        found = replace_config(image, resource.resource_type, resource.resource_name, values, broker=settings.current)
        settings.require_usable(found)
        return found

    outcomes = await alter_resources(request.resources, store, records, validate_only=request.validate_only)
    return AlterConfigsResponse(responses=await finished(answers(request.resources, outcomes, _answer)))


def _answer(resource: AlterConfigsResource, refusal: Refused | None) -> AlterConfigsResourceResponse:
    answer = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    if refusal is not None:
        answer.error_code, answer.error_message = refusal.code, refusal.message
    return answer
