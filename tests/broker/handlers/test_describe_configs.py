from __future__ import annotations

from typing import Any

import pytest

from tidemark.protocol.errors import ErrorCode
from tidemark.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidemark.protocol.messages.metadata import MetadataRequest

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TYPES_FROM = 3
DYNAMIC_TOPIC, STATIC_BROKER, DEFAULT = 1, 4, 5


def resource(kind: int, name: str, *keys: str, every: bool = False) -> DescribeConfigsResource:
    wanted = None if every else list(keys)
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=wanted)


async def describe(client: Any, version: int, *resources: DescribeConfigsResource, **fields: Any) -> list[Any]:
    return list((await client.ask(DescribeConfigsRequest(resources=list(resources), **fields), version)).results)


async def own_id(client: Any) -> str:
    return str((await client.ask(MetadataRequest(topics=[]), 12)).brokers[0].node_id)


async def test_a_setting_is_returned_with_where_its_value_comes_from(client: Any) -> None:
    await client.create("t", retention_ms="5000")
    for version in range(1, 5):
        (told,) = await describe(client, version, resource(TOPIC, "t", "retention.ms", "cleanup.policy"))
        assert (told.error_code, told.resource_type, told.resource_name) == (0, TOPIC, "t")
        values = {each.name: (each.value, each.config_source) for each in told.configs}
        assert values == {"retention.ms": ("5000", DYNAMIC_TOPIC), "cleanup.policy": ("delete", DEFAULT)}
        for each in told.configs:
            assert (each.read_only, each.is_sensitive, each.synonyms, each.documentation) == (False, False, [], None)
            assert (each.config_type > 0) == (version >= TYPES_FROM)


@pytest.mark.parametrize("every", [True, False])
async def test_null_and_an_empty_list_ask_for_all(shared: Any, topic: str, version: int, every: bool) -> None:
    (told,) = await describe(shared, version, resource(TOPIC, topic, every=every))
    names = {each.name for each in told.configs}
    assert len(names) == len(told.configs) > 20
    assert names >= {"retention.ms", "cleanup.policy", "min.insync.replicas"}


async def test_synonyms_and_documentation_are_returned_when_asked_for(client: Any) -> None:
    await client.create("t", segment_bytes="2000000")
    for version in range(1, 5):
        (told,) = await describe(
            client,
            version,
            resource(TOPIC, "t", "segment.bytes"),
            include_synonyms=True,
            include_documentation=version >= TYPES_FROM,
        )
        (entry,) = told.configs
        synonyms = [(each.name, each.value, each.source) for each in entry.synonyms]
        assert synonyms == [
            ("segment.bytes", "2000000", DYNAMIC_TOPIC),
            ("log.segment.bytes", "1073741824", DEFAULT),
        ]
        assert bool(entry.documentation) == (version >= TYPES_FROM)


async def test_keys_that_do_not_exist_are_left_out(shared: Any, topic: str, version: int) -> None:
    (told,) = await describe(shared, version, resource(TOPIC, topic, "no.such.key", "retention.ms", "retention.ms"))
    assert (told.error_code, [each.name for each in told.configs]) == (0, ["retention.ms"])


async def test_a_broker_tells_only_of_itself_and_of_what_the_cluster_set(shared: Any, version: int) -> None:
    me = await own_id(shared)
    own, default, other = await describe(
        shared, version, resource(BROKER, me, "node.id"), resource(BROKER, ""), resource(BROKER, "4711")
    )
    (entry,) = own.configs
    assert (entry.name, entry.value, entry.read_only) == ("node.id", me, True)
    assert default.error_code == ErrorCode.NONE
    assert other.error_code == ErrorCode.INVALID_REQUEST


async def test_a_group_has_settings_whether_it_exists_or_not(shared: Any, version: int) -> None:
    (told,) = await describe(shared, version, resource(GROUP, "g", "consumer.session.timeout.ms"))
    assert [(each.name, each.value) for each in told.configs] == [("consumer.session.timeout.ms", "45000")]


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "bad name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_each_resource_has_an_error_of_its_own(
    shared: Any, topic: str, version: int, kind: int, name: str, code: ErrorCode
) -> None:
    told = await describe(shared, version, resource(kind, name), resource(TOPIC, topic, "retention.ms"))
    answers = {each.resource_name: (each.error_code, len(each.configs)) for each in told}
    assert answers == {name: (code, 0), topic: (0, 1)}


async def test_a_subscription_that_is_not_there_has_the_defaults(shared: Any, version: int) -> None:
    (told,) = await describe(shared, version, resource(CLIENT_METRICS, "x"))
    assert {each.name: (each.value, each.config_source) for each in told.configs} == {
        "interval.ms": ("300000", DEFAULT),
        "match": ("", DEFAULT),
        "metrics": ("", DEFAULT),
    }
    assert await describe(shared, version) == []
