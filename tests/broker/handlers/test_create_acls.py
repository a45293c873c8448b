from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.create_acls import AclCreation, CreateAclsRequest

TOPIC, LITERAL, ALL, ALLOW = 2, 3, 2, 3


def entry(principal: str) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name="t",
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=ALL,
        permission_type=ALLOW,
    )


async def test_without_an_authorizer_every_entry_is_refused(shared: Any, version: int) -> None:
    answer = await shared.ask(CreateAclsRequest(creations=[entry("User:a"), entry("User:b")]), version)
    assert [each.error_code for each in answer.results] == [ErrorCode.SECURITY_DISABLED] * 2
    assert all("uthorizer" in each.error_message for each in answer.results)


async def test_nothing_is_refused_where_nothing_is_asked(shared: Any, version: int) -> None:
    assert (await shared.ask(CreateAclsRequest(), version)).results == []
