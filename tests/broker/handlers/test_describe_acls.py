from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_acls import DescribeAclsRequest

USERS_FROM = 3
ANY, USER = 1, 7


async def test_without_an_authorizer_there_are_no_entries_to_describe(shared: Any, version: int) -> None:
    for kind in (ANY, USER) if version >= USERS_FROM else (ANY,):
        request = DescribeAclsRequest(resource_type_filter=kind, operation=ANY, permission_type=ANY)
        answer = await shared.ask(request, version)
        assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert "uthorizer" in answer.error_message
