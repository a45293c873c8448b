from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)


async def ask(client: Any, *components: ComponentData, version: int = 1) -> Any:
    request = DescribeClientQuotasRequest(components=list(components))
    return await client.call(request, DescribeClientQuotasResponse, version)


@pytest.mark.parametrize("version", [0, 1])
async def test_no_quota_matches(client: Any, version: int) -> None:
    answer = await ask(client, ComponentData(entity_type="user", match_type=2), version=version)
    assert (answer.error_code, answer.entries) == (ErrorCode.NONE, [])
    assert (await ask(client, version=version)).entries == []


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([ComponentData(entity_type="", match_type=2)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="planet", match_type=2)], ErrorCode.UNSUPPORTED_VERSION),
        ([ComponentData(entity_type="user", match_type=3)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=0)], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=1, match="a")], ErrorCode.INVALID_REQUEST),
        ([ComponentData(entity_type="user", match_type=2)] * 2, ErrorCode.INVALID_REQUEST),
        (
            [ComponentData(entity_type="ip", match_type=2), ComponentData(entity_type="user", match_type=2)],
            ErrorCode.INVALID_REQUEST,
        ),
    ],
)
async def test_a_filter_is_checked_as_kafka_does(client: Any, components: list[ComponentData], code: ErrorCode) -> None:
    answer = await ask(client, *components)
    assert (answer.error_code, answer.entries) == (code, None)
