"""CreateAcls: add access control entries (KIP-140).

There is no authorizer yet, so each entry is refused with SECURITY_DISABLED, as a Kafka without one does.

v2: flexible (KIP-482)
v3: patterns of user principals (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.core.acl_operations import NO_AUTHORIZER
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


@handles(CreateAclsRequest, CreateAclsResponse)
def create_acls(request: CreateAclsRequest, _call: Call) -> CreateAclsResponse:
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused] * len(request.creations))
