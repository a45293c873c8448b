from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


async def ask(client: Any, names: list[str] | None) -> Any:
    users = None if names is None else [UserName(name=name) for name in names]
    return await client.call(DescribeUserScramCredentialsRequest(users=users), DescribeUserScramCredentialsResponse, 0)


@pytest.mark.parametrize("names", [None, []])
async def test_no_user_has_credentials(client: Any, names: list[str] | None) -> None:
    answer = await ask(client, names)
    assert (answer.error_code, answer.results) == (ErrorCode.NONE, [])


async def test_a_user_that_is_named_is_not_found_and_one_that_is_named_twice_is_refused(client: Any) -> None:
    answer = await ask(client, ["a", "b", "b"])
    assert [(each.user, each.error_code) for each in answer.results] == [
        ("a", ErrorCode.RESOURCE_NOT_FOUND),
        ("b", ErrorCode.DUPLICATE_RESOURCE),
    ]
