from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tidemark.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

TOPIC, BROKER, GROUP = 2, 4, 32
DYNAMIC_TOPIC = 1


def resource(kind: int, name: str, configs: dict[str, str | None]) -> AlterConfigsResource:
    settings = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=settings)


async def alter(client: Any, version: int, *resources: AlterConfigsResource, only: bool = False) -> list[int]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=only)
    answer = await client.ask(request, version)
    told = {(each.resource_type, each.resource_name) for each in answer.responses}
    assert told == {(each.resource_type, each.resource_name) for each in resources}
    return [each.error_code for each in answer.responses]


async def overrides(client: Any, topic: str) -> dict[str, str]:
    asked = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    (told,) = (await client.ask(DescribeConfigsRequest(resources=[asked]))).results
    return {each.name: each.value for each in told.configs if each.config_source == DYNAMIC_TOPIC}


async def test_what_is_not_named_goes_back_to_its_default(shared: Any, topic: str, version: int) -> None:
    assert await alter(shared, version, resource(TOPIC, topic, {"retention.ms": "1", "segment.bytes": "2000000"})) == [
        0
    ]
    assert await overrides(shared, topic) == {"retention.ms": "1", "segment.bytes": "2000000"}
    assert await alter(shared, version, resource(TOPIC, topic, {"retention.ms": "2"})) == [0]
    assert await overrides(shared, topic) == {"retention.ms": "2"}
    assert await alter(shared, version, resource(TOPIC, topic, {})) == [0]
    assert await overrides(shared, topic) == {}


async def test_validate_only_changes_nothing(shared: Any, topic: str, version: int) -> None:
    assert await alter(shared, version, resource(TOPIC, topic, {"retention.ms": "1"}), only=True) == [0]
    wrong = resource(TOPIC, topic, {"retention.ms": "soon"})
    assert await alter(shared, version, wrong, only=True) == [ErrorCode.INVALID_CONFIG]
    assert await overrides(shared, topic) == {}


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"retention.ms": "7", "no.such.key": "1"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ({"cleanup.policy": "burn"}, ErrorCode.INVALID_CONFIG),
        ({"retention.ms": None}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_changes_whole_or_not_at_all(
    shared: Any, topic: str, version: int, configs: dict[str, str | None], code: ErrorCode
) -> None:
    await alter(shared, version, resource(TOPIC, topic, {"segment.bytes": "2000000"}))
    assert await alter(shared, version, resource(TOPIC, topic, configs)) == [code]
    assert await overrides(shared, topic) == {"segment.bytes": "2000000"}


async def test_a_refused_resource_does_not_hold_up_the_others(shared: Any, topic: str, version: int) -> None:
    missing = resource(TOPIC, "missing", {"retention.ms": "1"})
    request = AlterConfigsRequest(resources=[missing, resource(TOPIC, topic, {"retention.ms": "3"})])
    answer = await shared.ask(request, version)
    codes = {each.resource_name: each.error_code for each in answer.responses}
    assert codes == {"missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic: 0}
    assert await overrides(shared, topic) == {"retention.ms": "3"}


@pytest.mark.parametrize(("kind", "name"), [(77, "x"), (GROUP, ""), (BROKER, "4711x")])
async def test_resources_that_cannot_be_altered(shared: Any, version: int, kind: int, name: str) -> None:
    assert await alter(shared, version, resource(kind, name, {})) == [ErrorCode.INVALID_REQUEST]


async def test_a_resource_that_is_named_twice_changes_once(shared: Any, topic: str, version: int) -> None:
    twice = [resource(TOPIC, topic, {"retention.ms": value}) for value in ("1", "2")]
    assert await alter(shared, version, *twice) == [0, ErrorCode.INVALID_REQUEST]
    assert await overrides(shared, topic) == {"retention.ms": "1"}
    assert await alter(shared, version) == []
