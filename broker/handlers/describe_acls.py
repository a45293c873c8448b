"""DescribeAcls: the access control entries that a filter matches (KIP-140).

Without an authorizer the answer is SECURITY_DISABLED, as Kafka's is. Tools take that for a cluster without access
control, and go on: MirrorMaker 2 stops copying entries.

v1: pattern types (KIP-290)
v2: flexible (KIP-482)
v3: patterns of user principals (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.core.acl_operations import NO_AUTHORIZER
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.registry import Call, handles
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.acls import read_filter
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.security.guard import Guard
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(DescribeAclsRequest, DescribeAclsResponse)
def describe_acls(
    request: DescribeAclsRequest, _call: Call, *, store: MetadataStore, guard: Guard | None
) -> Job[DescribeAclsResponse]:
    if guard is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    try:
        wanted = read_filter(request)
    except Refused as refusal:
        return DescribeAclsResponse(error_code=refusal.code, error_message=refusal.message)
    resources: dict[tuple[int, int, str], DescribeAclsResource] = {}
    for acl in store.image.acls:
        yield
        if not wanted.matches(acl):
            continue
        resource = resources.setdefault(
            (acl.resource_type, acl.pattern_type, acl.name),
            DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern_type
            ),
        )
        description = AclDescription(
            principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
        )
        resource.acls.append(description)
    return DescribeAclsResponse(resources=list(resources.values()))
