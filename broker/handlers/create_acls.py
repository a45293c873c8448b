"""CreateAcls: add access control entries (KIP-140).

One that is there already is fine; a refused one does not hold up the others. The controller decides; other brokers
forward the request to it.

Without an authorizer each entry is refused with SECURITY_DISABLED.

v1: pattern types (KIP-290)
v2: flexible (KIP-482)
v3: patterns of user principals (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.core.acl import Acl
from tidemark.broker.core.acl_operations import NO_AUTHORIZER
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.metadata.acls import add_acls, read_acl, read_each
from tidemark.broker.metadata.features import check_security_level
from tidemark.broker.metadata.image import Image
from tidemark.broker.metadata.records import Record
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handles(CreateAclsRequest, CreateAclsResponse, on_controller=True)
async def create_acls(
    request: CreateAclsRequest, _call: Call, *, store: MetadataStore, guard: Guard | None
) -> CreateAclsResponse:
    if guard is None:
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused] * len(request.creations))
    outcomes = read_each(read_acl, request.creations)
    acls = [outcome for outcome in outcomes if isinstance(outcome, Acl)]

    def decide(image: Image) -> list[Record]:
        check_security_level(image)
        return add_acls(image, acls)

    try:
        if acls:
            await store.change(decide)
    except Refused as refusal:
        if refusal.code == ErrorCode.NOT_CONTROLLER:
            raise
        outcomes = [refusal if isinstance(outcome, Acl) else outcome for outcome in outcomes]
    return CreateAclsResponse(results=[_result(outcome) for outcome in outcomes])


def _result(outcome: Acl | Refused) -> AclCreationResult:
    if isinstance(outcome, Refused):
        return AclCreationResult(error_code=outcome.code, error_message=outcome.message)
    return AclCreationResult()
