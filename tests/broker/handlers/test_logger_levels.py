"""Levels of loggers, as Kafka's tools ask for them (KIP-412): DescribeConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidemark.protocol.messages.metadata import MetadataRequest

BROKER_LOGGER, TOPIC = 8, 2
SET, DELETE, APPEND = 0, 1, 2
DYNAMIC_BROKER_LOGGER = 6
LOGGER = "tidemark.broker.server.dispatch"


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    before = {name: logging.getLogger(name).level for name in (LOGGER, "tidemark.broker", "tidemark.requests")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


async def own_id(client: Any) -> str:
    return str((await client.ask(MetadataRequest(topics=[]), 12)).brokers[0].node_id)


async def alter(client: Any, *changes: tuple[str, int, str | None], broker: str | None = None, **rest: Any) -> Any:
    configs = [
        AlterableConfig(name=name, config_operation=operation, value=value) for name, operation, value in changes
    ]
    name = broker if broker is not None else await own_id(client)
    resource = AlterConfigsResource(resource_type=BROKER_LOGGER, resource_name=name, configs=configs)
    [answer] = (await client.ask(IncrementalAlterConfigsRequest(resources=[resource], **rest))).responses
    return answer


async def levels(client: Any, *names: str) -> dict[str, str]:
    resource = DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=await own_id(client), configuration_keys=list(names)
    )
    [answer] = (await client.ask(DescribeConfigsRequest(resources=[resource]))).results
    assert answer.error_code == 0
    for each in answer.configs:
        assert (each.config_source, each.read_only, each.is_sensitive) == (DYNAMIC_BROKER_LOGGER, False, False)
    return {each.name: each.value for each in answer.configs}


async def test_loggers_are_listed_with_the_levels_that_count(shared: Any) -> None:
    found = await levels(shared)
    assert {"root", "tidemark", "tidemark.broker", LOGGER} <= set(found)
    assert set(found.values()) <= {"FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"}
    assert list(await levels(shared, "root")) == ["root"]


async def test_a_level_counts_for_a_logger_and_those_below_until_it_is_taken_away(shared: Any) -> None:
    before = await levels(shared, LOGGER)
    assert (await alter(shared, ("tidemark.broker", SET, "ERROR"))).error_code == 0
    assert await levels(shared, LOGGER, "tidemark.broker") == {"tidemark.broker": "ERROR", LOGGER: "ERROR"}
    assert (await alter(shared, (LOGGER, SET, "TRACE"))).error_code == 0
    assert await levels(shared, LOGGER, "tidemark.broker") == {"tidemark.broker": "ERROR", LOGGER: "TRACE"}
    assert (await alter(shared, (LOGGER, DELETE, None), ("tidemark.broker", DELETE, None))).error_code == 0
    assert await levels(shared, LOGGER) == before


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("tidemark.no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("kafka.server", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ((LOGGER, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((LOGGER, SET, None), ErrorCode.INVALID_REQUEST),
        ((LOGGER, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_makes_no_sense_is_refused_and_changes_nothing(shared: Any, change: Any, code: ErrorCode) -> None:
    before = await levels(shared)
    answer = await alter(shared, ("tidemark.broker", SET, "ERROR"), change)
    assert answer.error_code == code, answer.error_message
    assert await levels(shared) == before


async def test_only_the_broker_itself_changes_its_levels(shared: Any) -> None:
    assert (await alter(shared, (LOGGER, SET, "INFO"), broker="12345")).error_code == ErrorCode.INVALID_REQUEST
    assert (await alter(shared, (LOGGER, SET, "INFO"), broker="")).error_code == ErrorCode.INVALID_REQUEST


async def test_a_request_that_only_validates_changes_no_level(shared: Any) -> None:
    before = await levels(shared, LOGGER)
    assert (await alter(shared, (LOGGER, SET, "TRACE"), validate_only=True)).error_code == 0
    assert await levels(shared, LOGGER) == before


async def test_every_request_is_told_while_the_requests_logger_is_at_debug(
    shared: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await alter(shared, ("tidemark.requests", SET, "DEBUG"))).error_code == 0
    await own_id(shared)
    assert (await alter(shared, ("tidemark.requests", DELETE, None))).error_code == 0
    await own_id(shared)
    told = [each for each in caplog.records if each.name == "tidemark.requests"]
    apis = [each.about["api"] for each in told]  # type: ignore[attr-defined]
    assert apis.count("Metadata") == 2  # which asks for the id: once by itself, once for the second change
    assert {"listener", "client", "api_version", "correlation_id", "total_ms", "local_ms", "remote_ms"} <= set(
        told[0].about  # type: ignore[attr-defined]
    )
