from __future__ import annotations

from typing import Any

from tidemark.broker.core.acl import AclOperation, PatternType, Permission, ResourceType
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


async def described(guarded: Any, **fields: Any) -> set[tuple[str, str, str]]:
    known: dict[str, Any] = {
        "resource_type_filter": ANY,
        "pattern_type_filter": ANY,
        "operation": ANY,
        "permission_type": ANY,
    }
    answer = await guarded.client.ask(DescribeAclsRequest(**known | fields))
    assert answer.error_code == 0
    return {
        (resource.resource_name, PatternType(resource.pattern_type).name, AclOperation(each.operation).name)
        for resource in answer.resources
        for each in resource.acls
    }


async def test_a_filter_finds_entries_by_each_of_their_parts(guarded: Any) -> None:
    read, write = (AclOperation.READ, ResourceType.TOPIC), (AclOperation.WRITE, ResourceType.TOPIC)
    await guarded.allow("ann", (*read, "orders"), (*write, "orders"), (*read, "*"), (*read, "other"))
    await guarded.allow("ann", (*read, "ord"), resource_pattern_type=PatternType.PREFIXED)
    await guarded.allow("bob", (AclOperation.READ, ResourceType.GROUP, "orders"), host="10.0.0.7")
    orders = {("orders", "LITERAL", "READ"), ("orders", "LITERAL", "WRITE")}
    topic = {"resource_type_filter": ResourceType.TOPIC}
    assert len(await described(guarded)) == 5  # two entries look the same here
    assert await described(guarded, **topic, resource_name_filter="orders") == orders
    match = await described(
        guarded,
        **topic,
        resource_name_filter="orders",
        pattern_type_filter=PatternType.MATCH,
        operation=AclOperation.READ,
    )
    assert match == {("orders", "LITERAL", "READ"), ("*", "LITERAL", "READ"), ("ord", "PREFIXED", "READ")}
    assert await described(guarded, pattern_type_filter=PatternType.PREFIXED) == {("ord", "PREFIXED", "READ")}
    assert await described(guarded, principal_filter="User:bob") == {("orders", "LITERAL", "READ")}
    assert await described(guarded, host_filter="10.0.0.7") == {("orders", "LITERAL", "READ")}
    assert await described(guarded, host_filter="10.0.0.8") == set()
    assert await described(guarded, permission_type=Permission.DENY) == set()


async def test_a_filter_that_makes_no_sense_is_refused(guarded: Any) -> None:
    answer = await guarded.client.ask(DescribeAclsRequest(resource_type_filter=77, operation=ANY, permission_type=ANY))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
