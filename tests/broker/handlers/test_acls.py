"""DescribeAcls, CreateAcls and DeleteAcls, as a broker without an authorizer answers them."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidemark.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tidemark.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_entries_cannot_be_described(client: Any, version: int) -> None:
    answer = await client.call(DescribeAclsRequest(resource_type_filter=1), DescribeAclsResponse, version)
    assert answer.error_code == ErrorCode.SECURITY_DISABLED
    assert "authorizer" in answer.error_message


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_entry_to_create_is_refused(client: Any, version: int) -> None:
    request = CreateAclsRequest(creations=[AclCreation(principal="User:a"), AclCreation(principal="User:b")])
    answer = await client.call(request, CreateAclsResponse, version)
    assert [each.error_code for each in answer.results] == [ErrorCode.SECURITY_DISABLED] * 2


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_filter_to_delete_is_refused(client: Any, version: int) -> None:
    answer = await client.call(DeleteAclsRequest(filters=[DeleteAclsFilter()] * 3), DeleteAclsResponse, version)
    assert [each.error_code for each in answer.filter_results] == [ErrorCode.SECURITY_DISABLED] * 3
