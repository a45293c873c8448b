from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages import alter_client_quotas
from tidemark.protocol.messages.alter_client_quotas import AlterationData, AlterClientQuotasRequest, OpData
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


ANN, DEFAULT_USER, PAIR, ADDRESS = "user=ann", "user=None", "client-id=app,user=ann", "ip=10.0.0.1"
EXACT, DEFAULT, ANY = 0, 1, 2


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, [ANN, DEFAULT_USER, PAIR, ADDRESS]),
        ([], True, []),
        ([component("user", EXACT, "ann")], False, [ANN, PAIR]),
        ([component("user", EXACT, "ann")], True, [ANN]),
        ([component("user", DEFAULT)], False, [DEFAULT_USER]),
        ([component("user", ANY)], True, [ANN, DEFAULT_USER]),
        ([component("user", ANY), component("client-id", ANY)], True, [PAIR]),
        ([component("client-id", EXACT, "other")], False, []),
        ([component("ip", ANY)], False, [ADDRESS]),
    ],
)
async def test_a_filter_finds_what_it_matches(
    client: Any, components: list[ComponentData], strict: bool, found: list[str]
) -> None:
    entities: list[list[tuple[str, str | None]]] = [
        [("user", "ann")],
        [("user", None)],
        [("user", "ann"), ("client-id", "app")],
        [("ip", "10.0.0.1")],
    ]
    entries = [
        AlterationData(
            entity=[alter_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[OpData(key="connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate", value=9.0)],
        )
        for entity in entities
    ]
    await client.ask(AlterClientQuotasRequest(entries=entries))
    answer = await client.ask(DescribeClientQuotasRequest(components=components, strict=strict))
    described = [
        ",".join(f"{each.entity_type}={each.entity_name}" for each in entry.entity) for entry in answer.entries
    ]
    assert sorted(described) == sorted(found)


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
