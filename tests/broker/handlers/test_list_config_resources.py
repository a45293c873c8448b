from __future__ import annotations

from typing import Any

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidemark.protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


async def listed(client: Any, *kinds: int) -> set[tuple[int, str]]:
    answer = await client.ask(ListConfigResourcesRequest(resource_types=list(kinds)), 1)
    assert answer.error_code == ErrorCode.NONE
    return {(each.resource_type, each.resource_name) for each in answer.config_resources}


async def test_version_0_asks_for_subscriptions_of_client_metrics_and_there_are_none(shared: Any, topic: str) -> None:
    answer = await shared.ask(ListConfigResourcesRequest(), 0)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.NONE, [])


async def test_topics_and_brokers_are_listed_by_their_types_and_all_by_none(shared: Any, topic: str) -> None:
    assert (TOPIC, topic) in await listed(shared, TOPIC)
    assert {kind for kind, _ in await listed(shared, TOPIC)} == {TOPIC}
    assert {kind for kind, _ in await listed(shared, BROKER)} == {BROKER}
    assert {kind for kind, _ in await listed(shared, BROKER_LOGGER)} == {BROKER_LOGGER}
    everything = await listed(shared)
    assert everything >= await listed(shared, BROKER) | {(TOPIC, topic)}
    assert await listed(shared, TOPIC, BROKER, TOPIC) == await listed(shared, TOPIC) | await listed(shared, BROKER)


async def test_a_group_is_listed_when_it_has_settings_of_its_own(client: Any) -> None:
    assert await listed(client, GROUP) == set()
    change = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="46000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[change])
    answer = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert [each.error_code for each in answer.responses] == [0]
    assert await listed(client, GROUP) == {(GROUP, "g")}


async def test_types_that_do_not_exist_are_refused(shared: Any) -> None:
    answer = await shared.ask(ListConfigResourcesRequest(resource_types=[TOPIC, 77]), 1)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert await listed(shared, CLIENT_METRICS) == set()
