from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def change(name: str, value: str | None, operation: int = SET) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=operation, value=value)


async def alter(
    client: Any, kind: int, name: str, *changes: AlterableConfig, version: int = 1, only: bool = False
) -> Any:
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=list(changes))
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)
    answer = await client.call(request, IncrementalAlterConfigsResponse, version)
    (result,) = answer.responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


async def value_of(client: Any, kind: int, name: str, key: str) -> Any:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[key])
    answer = await client.call(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse, 4)
    return answer.results[0].configs[0].value


@pytest.mark.parametrize("version", [0, 1])
async def test_a_setting_is_set_and_deleted(client: Any, version: int) -> None:
    await client.create("t")
    assert (await alter(client, TOPIC, "t", change("retention.ms", "5000"), version=version)).error_code == 0
    assert await value_of(client, TOPIC, "t", "retention.ms") == "5000"
    assert (await alter(client, TOPIC, "t", change("retention.ms", None, DELETE), version=version)).error_code == 0
    assert await value_of(client, TOPIC, "t", "retention.ms") == "604800000"


async def test_items_are_appended_to_and_subtracted_from_a_list(client: Any) -> None:
    await client.create("t")
    await alter(client, TOPIC, "t", change("cleanup.policy", "compact", APPEND))
    assert await value_of(client, TOPIC, "t", "cleanup.policy") == "delete,compact"
    await alter(client, TOPIC, "t", change("cleanup.policy", "delete", SUBTRACT))
    assert await value_of(client, TOPIC, "t", "cleanup.policy") == "compact"


async def test_validate_only_changes_nothing(client: Any) -> None:
    await client.create("t")
    assert (await alter(client, TOPIC, "t", change("retention.ms", "5000"), only=True)).error_code == 0
    assert await value_of(client, TOPIC, "t", "retention.ms") == "604800000"


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code"),
    [
        (TOPIC, "missing", [change("retention.ms", "1")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "t", [change("no.such.key", "1")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [change("retention.ms", "soon")], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [change("retention.ms", None)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [change("retention.ms", "1", APPEND)], ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", [change("retention.ms", "1", 9)], ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", [change("retention.ms", "1")] * 2, ErrorCode.INVALID_REQUEST),
        (GROUP, "", [change("consumer.session.timeout.ms", "45000")], ErrorCode.INVALID_REQUEST),
        (77, "x", [change("a", "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "17", [change("num.io.threads", "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "²", [change("num.io.threads", "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "1" * 5000, [change("num.io.threads", "1")], ErrorCode.INVALID_REQUEST),
        (BROKER, "", [change("node.id", "9")], ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_is_wrong_is_refused(
    client: Any, kind: int, name: str, changes: list[AlterableConfig], code: ErrorCode
) -> None:
    await client.create("t")
    assert (await alter(client, kind, name, *changes)).error_code == code


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("operation", [SET, DELETE, APPEND])
async def test_a_key_as_long_as_a_string_can_be_is_answered(client: Any, version: int, operation: int) -> None:
    await client.create("t")
    result = await alter(client, TOPIC, "t", change("k" * 32_767, "v", operation), version=version)
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert len(result.error_message) < 2000


async def test_a_value_as_long_as_a_string_can_be_is_answered(client: Any) -> None:
    await client.create("t")
    result = await alter(client, TOPIC, "t", change("retention.ms", "9" * 32_767), version=0)
    assert result.error_code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("listeners", "PLAINTEXT://127.0.0.1:1"),
        ("advertised.listeners", "PLAINTEXT://127.0.0.1:1"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"),
    ],
)
async def test_listeners_cannot_be_changed_while_the_broker_runs(client: Any, node: Any, name: str, value: str) -> None:
    for broker in ("", str(node.config.node_id)):
        result = await alter(client, BROKER, broker, change(name, value))
        assert result.error_code == ErrorCode.INVALID_REQUEST, result
        assert "cannot be changed while the broker runs" in result.error_message


async def test_max_connections_takes_effect_while_the_broker_runs(client: Any, node: Any, connect: Any) -> None:
    assert (await alter(client, BROKER, "", change("max.connections", "1"))).error_code == 0
    refused = await connect(node)
    assert await refused.closed_by_peer()
    assert (await alter(client, BROKER, "", change("max.connections", None, DELETE))).error_code == 0
    accepted = await connect(node)
    await accepted.create("t")


async def test_max_connections_per_ip_takes_effect_while_the_broker_runs(client: Any, node: Any, connect: Any) -> None:
    assert (await alter(client, BROKER, "", change("max.connections.per.ip", "1"))).error_code == 0
    refused = await connect(node)
    assert await refused.closed_by_peer()
    overrides = change("max.connections.per.ip.overrides", "127.0.0.1:5")
    assert (await alter(client, BROKER, "", overrides)).error_code == 0
    accepted = await connect(node)
    await accepted.create("t")
