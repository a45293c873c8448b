"""DescribeClientQuotas: the quotas of users, clients and addresses that a filter matches (KIP-546).

A filter is checked as Kafka checks it. No quota can be set yet (AlterClientQuotas is not served), so none matches.

v1: flexible (KIP-482)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.repeats import repeated
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

ENTITY_TYPES: Final = ("user", "client-id", "ip")
EXACT: Final = 0
DEFAULT: Final = 1
SPECIFIED: Final = 2


@handles(DescribeClientQuotasRequest, DescribeClientQuotasResponse)
def describe_client_quotas(request: DescribeClientQuotasRequest, _call: Call) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except Refused as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.code, error_message=refusal.message, entries=None)
    return DescribeClientQuotasResponse()


def _check(components: Sequence[ComponentData]) -> None:
    types = [component.entity_type for component in components]
    for component in components:
        _check_component(component)
    if twice := repeated(types):
        raise Refused(ErrorCode.INVALID_REQUEST, f"The entity type '{twice.pop()}' is in the filter twice.")
    if "ip" in types and len(types) > 1:
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
