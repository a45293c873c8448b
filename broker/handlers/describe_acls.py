"""DescribeAcls: the access control entries that a filter matches (KIP-140).

There is no authorizer yet, so the answer is SECURITY_DISABLED, as a Kafka without one gives it. Tools take that for
a cluster without access control, and go on: MirrorMaker 2 stops copying entries.

v2: flexible (KIP-482)
v3: patterns of user principals (KIP-373)
"""

from __future__ import annotations

from tidemark.broker.core.acl_operations import NO_AUTHORIZER
from tidemark.broker.core.registry import Call, handles
from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@handles(DescribeAclsRequest, DescribeAclsResponse)
def describe_acls(_request: DescribeAclsRequest, _call: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
