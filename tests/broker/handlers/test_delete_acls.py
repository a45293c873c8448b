from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest

ANY = 1
EVERYTHING = DeleteAclsFilter(resource_type_filter=ANY, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)


async def test_without_an_authorizer_every_filter_is_refused(shared: Any, version: int) -> None:
    answer = await shared.ask(DeleteAclsRequest(filters=[EVERYTHING] * 3), version)
    assert [each.error_code for each in answer.filter_results] == [ErrorCode.SECURITY_DISABLED] * 3
    assert all(each.matching_acls == [] for each in answer.filter_results)


async def test_nothing_is_refused_where_nothing_is_asked(shared: Any, version: int) -> None:
    assert (await shared.ask(DeleteAclsRequest(), version)).filter_results == []
