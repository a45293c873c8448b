"""DeleteAcls: remove the access control entries that filters match (KIP-140).

There is no authorizer yet, so each filter is refused with SECURITY_DISABLED, as a Kafka without one does.

v2: flexible (KIP-482)
v3: patterns of user principals (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.core.acl_operations import NO_AUTHORIZER
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


@handles(DeleteAclsRequest, DeleteAclsResponse)
def delete_acls(request: DeleteAclsRequest, _call: Call) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
