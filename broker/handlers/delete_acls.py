"""DeleteAcls: remove the access control entries that filters match (KIP-140). The controller decides; other brokers
forward the request to it.

Without an authorizer each filter is refused with SECURITY_DISABLED.

v1: pattern types (KIP-290)
v2: flexible (KIP-482)
v3: patterns of user principals (KIP-373)
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.broker.core.acl import Acl
from tidemark.broker.core.acl_operations import NO_AUTHORIZER
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.acls import matching, read_each, read_filter, remove_acls
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

Outcome = Sequence[Acl] | Refused


@handles(DeleteAclsRequest, DeleteAclsResponse, on_controller=True)
async def delete_acls(
    request: DeleteAclsRequest, _call: Call, *, store: MetadataStore, guard: Guard | None
) -> DeleteAclsResponse:
    if guard is None:
        refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    filters = read_each(read_filter, request.filters)
    outcomes: list[Outcome] = []

    def decide(image: Image) -> Job[list[Record]]:
        outcomes.clear()
        for wanted in filters:
            outcomes.append(wanted if isinstance(wanted, Refused) else matching(image, wanted))
            yield
        return remove_acls(acl for found in outcomes if not isinstance(found, Refused) for acl in found)

    await store.change(decide)
    return DeleteAclsResponse(filter_results=[_result(outcome) for outcome in outcomes])


def _result(outcome: Outcome) -> DeleteAclsFilterResult:
    if isinstance(outcome, Refused):
        return DeleteAclsFilterResult(error_code=outcome.code, error_message=outcome.message)
    return DeleteAclsFilterResult(matching_acls=[_matching(acl) for acl in outcome])


def _matching(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
