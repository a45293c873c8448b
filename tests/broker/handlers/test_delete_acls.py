from __future__ import annotations

from typing import Any

from tidemark.broker.core.acl import AclOperation, PatternType, Permission, ResourceType
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


async def test_what_a_filter_matches_is_removed_and_returned(guarded: Any) -> None:
    read = (AclOperation.READ, ResourceType.TOPIC)
    await guarded.allow("ann", (*read, "t"), (*read, "u"))
    await guarded.allow(
        "bob", (*read, "t"), resource_pattern_type=PatternType.PREFIXED, permission_type=Permission.DENY
    )
    of_ann = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        pattern_type_filter=ANY,
        principal_filter="User:ann",
        operation=ANY,
        permission_type=ANY,
    )
    nonsense = DeleteAclsFilter(resource_type_filter=77, pattern_type_filter=ANY, operation=ANY, permission_type=ANY)
    answer = await guarded.client.ask(DeleteAclsRequest(filters=[of_ann, nonsense]))
    assert [each.error_code for each in answer.filter_results] == [0, ErrorCode.INVALID_REQUEST]
    found = answer.filter_results[0].matching_acls
    assert [(each.principal, each.resource_name, each.error_code) for each in found] == [
        ("User:ann", "t", 0),
        ("User:ann", "u", 0),
    ]
    assert [each.principal for each in guarded.acls] == ["User:bob"]
    answer = await guarded.client.ask(DeleteAclsRequest(filters=[EVERYTHING, EVERYTHING]))
    assert [len(each.matching_acls) for each in answer.filter_results] == [1, 1]
    assert guarded.acls == []
    await guarded.restart()
    assert guarded.acls == []
