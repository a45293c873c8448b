"""DescribeClientQuotas: the quotas of users, clients and addresses that a filter matches (KIP-546).

A component of the filter matches an entity that has a part of its type: of this name, the default, or any. A strict
filter matches only entities without further parts; an empty one matches all, or (strict) none.

v1: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import repeated
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.client_quotas import ENTITY_TYPES, IP, Entity
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


@handles(DescribeClientQuotasRequest, DescribeClientQuotasResponse)
def describe_client_quotas(
    request: DescribeClientQuotasRequest, _call: Call, *, cluster: ClusterView
) -> Job[DescribeClientQuotasResponse]:
    try:
        _check(request.components)
    except Refused as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.code, error_message=refusal.message, entries=None)
    response = DescribeClientQuotasResponse(entries=[])
    assert response.entries is not None
    for entity, values in cluster.image.client_quotas.items():
        yield
        if _matches(entity, request):
            response.entries.append(_entry(entity, values))
    return response


def _matches(entity: Entity, request: DescribeClientQuotasRequest) -> bool:
    if request.strict and len(entity) != len(request.components):
        return False
    parts = dict(entity)
    for component in request.components:
        if component.entity_type not in parts:
            return False
        if component.match_type != SPECIFIED and parts[component.entity_type] != component.match:
            return False
    return True


def _entry(entity: Entity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[ValueData(key=key, value=value) for key, value in values.items()],
    )


def _check(components: Sequence[ComponentData]) -> None:
    components = components[: len(ENTITY_TYPES) + 1]  # of more, one is there twice, and these are enough to see it
    types = [component.entity_type for component in components]
    for component in components:
        _check_component(component)
    if twice := repeated(types):
        raise Refused(ErrorCode.INVALID_REQUEST, f"The entity type '{twice.pop()}' is in the filter twice.")
    if IP in types and len(types) > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, "The entity type 'ip' cannot be combined with others.")


def _check_component(component: ComponentData) -> None:
    if not component.entity_type:
        raise Refused(ErrorCode.INVALID_REQUEST, "An entity type is empty.")
    if component.entity_type not in ENTITY_TYPES:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"There is no entity type '{component.entity_type}'.")
    if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
        raise Refused(ErrorCode.INVALID_REQUEST, f"There is no match type {component.match_type}.")
    if (component.match is not None) != (component.match_type == EXACT):
        raise Refused(ErrorCode.INVALID_REQUEST, "Only an exact match names what it matches.")
