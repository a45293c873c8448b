"""Configurations by hand: describe with sources and synonyms, change, refuse."""

from __future__ import annotations

from typing import Any

import pytest
from harness.errors import Error
from harness.topic import Topic
from harness.waiting import eventually
from harness.wire import Wire

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
# Where a value came from.
DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT = 1, 2, 3, 4, 5


def describe(wire: Wire, kind: int, name: str, *keys: str, docs: bool = False) -> Any:
    answer = wire.call(
        "DescribeConfigs", 4, include_synonyms=True, include_documentation=docs,
        resources=[{"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}],
    )  # fmt: skip
    return answer.results[0]


def value_of(wire: Wire, kind: int, name: str, key: str) -> tuple[str | None, int]:
    (config,) = describe(wire, kind, name, key).configs
    return config.value, config.config_source


def alter(
    wire: Wire, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Error:
    answer = wire.call(
        "IncrementalAlterConfigs", 1, validate_only=validate_only,
        resources=[
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": key, "config_operation": how, "value": value} for key, how, value in changes],
            }
        ],
    )  # fmt: skip
    return Error(answer.responses[0].error_code)


def replace(wire: Wire, name: str, **values: str | None) -> Error:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]
    answer = wire.call(
        "AlterConfigs", 2, validate_only=False,
        resources=[{"resource_type": TOPIC, "resource_name": name, "configs": configs}],
    )  # fmt: skip
    return Error(answer.responses[0].error_code)


def test_topic_config_is_described_with_type_source_and_documentation(wire: Wire, made: Topic) -> None:
    found = describe(wire, TOPIC, made.name, "retention.ms", "no.such.key", docs=True)
    assert found.error_code == Error.NONE
    (config,) = found.configs
    assert (config.name, config.value, config.config_source) == ("retention.ms", "604800000", DEFAULT)
    assert (config.read_only, config.is_sensitive, config.config_type) == (False, False, 5)
    assert config.documentation


KEYS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


def test_topic_configs_have_kafkas_names_and_defaults(wire: Wire, made: Topic) -> None:
    values = {config.name: config.value for config in describe(wire, TOPIC, made.name).configs}
    assert {key: values.get(key) for key in KEYS} == KEYS


def test_set_and_delete(wire: Wire, made: Topic) -> None:
    assert alter(wire, TOPIC, made.name, ("retention.ms", SET, "1000")) == Error.NONE
    eventually(lambda: value_of(wire, TOPIC, made.name, "retention.ms") == ("1000", DYNAMIC_TOPIC))
    (config,) = describe(wire, TOPIC, made.name, "retention.ms").configs
    assert (config.synonyms[0].name, config.synonyms[0].value, config.synonyms[0].source) == (
        "retention.ms",
        "1000",
        DYNAMIC_TOPIC,
    )
    assert alter(wire, TOPIC, made.name, ("retention.ms", DELETE, None)) == Error.NONE
    eventually(lambda: value_of(wire, TOPIC, made.name, "retention.ms") == ("604800000", DEFAULT))


def test_append_and_subtract_on_a_list(wire: Wire, made: Topic) -> None:
    for how, expected in ((APPEND, "delete,compact"), (APPEND, "delete,compact"), (SUBTRACT, "delete")):
        assert alter(wire, TOPIC, made.name, ("cleanup.policy", how, "compact")) == Error.NONE
        eventually(lambda expected=expected: value_of(wire, TOPIC, made.name, "cleanup.policy")[0] == expected)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([("retention.ms", SET, "soon")], Error.INVALID_CONFIG),
        ([("no.such.key", SET, "1")], Error.INVALID_CONFIG),
        ([("retention.ms", APPEND, "1")], Error.INVALID_CONFIG),
        ([("cleanup.policy", SET, "burn")], Error.INVALID_CONFIG),
        ([("retention.ms", SET, None)], Error.INVALID_REQUEST),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], Error.INVALID_REQUEST),
    ],
    ids=["value", "name", "append to a number", "choice", "null", "twice"],
)
@pytest.mark.parametrize("validate_only", [False, True], ids=["alter", "validate only"])
def test_bad_change_is_refused_whole(wire: Wire, made: Topic, changes: Any, error: Error, validate_only: bool) -> None:
    good = ("segment.bytes", SET, "2000000")
    assert alter(wire, TOPIC, made.name, good, *changes, validate_only=validate_only) == error
    assert value_of(wire, TOPIC, made.name, "segment.bytes")[1] == DEFAULT


def test_validate_only_changes_nothing(wire: Wire, made: Topic) -> None:
    assert alter(wire, TOPIC, made.name, ("retention.ms", SET, "7"), validate_only=True) == Error.NONE
    assert value_of(wire, TOPIC, made.name, "retention.ms") == ("604800000", DEFAULT)


def test_alter_configs_replaces_all(wire: Wire, made: Topic) -> None:
    alter(wire, TOPIC, made.name, ("segment.bytes", SET, "2000000"))
    assert replace(wire, made.name, retention_ms="99") == Error.NONE
    eventually(lambda: value_of(wire, TOPIC, made.name, "retention.ms") == ("99", DYNAMIC_TOPIC))
    assert value_of(wire, TOPIC, made.name, "segment.bytes")[1] == DEFAULT
    assert replace(wire, made.name, retention_ms="x") == Error.INVALID_CONFIG
    assert replace(wire, made.name, retention_ms=None) == Error.INVALID_REQUEST


def test_configs_of_what_is_not_there(wire: Wire) -> None:
    assert describe(wire, TOPIC, "no-such-topic").error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert describe(wire, TOPIC, "bad name").error_code == Error.INVALID_TOPIC_EXCEPTION
    assert describe(wire, BROKER, "9", "num.partitions").error_code == Error.INVALID_REQUEST
    assert describe(wire, BROKER, "x", "num.partitions").error_code == Error.INVALID_REQUEST
    assert alter(wire, TOPIC, "no-such-topic", ("retention.ms", SET, "1")) == Error.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(wire, BROKER, "9", ("log.retention.ms", SET, "1")) == Error.INVALID_REQUEST
    assert alter(wire, 77, "x", ("a", SET, "1")) == Error.INVALID_REQUEST


def test_broker_config_is_described(wire: Wire) -> None:
    by_name = {config.name: config for config in describe(wire, BROKER, "0").configs}
    assert (by_name["num.partitions"].value, by_name["num.partitions"].config_source) == ("1", DEFAULT)
    assert by_name["log.dirs"].read_only
    assert by_name["log.dirs"].config_source == STATIC_BROKER
    assert by_name["auto.create.topics.enable"].value == "true"


def test_read_only_broker_config_is_refused(wire: Wire) -> None:
    assert alter(wire, BROKER, "0", ("log.dirs", SET, "elsewhere")) == Error.INVALID_REQUEST


def test_dynamic_broker_config_is_the_default_of_topics(wire: Wire, made: Topic) -> None:
    try:
        assert alter(wire, BROKER, "", ("log.retention.ms", SET, "6000000")) == Error.NONE
        eventually(lambda: value_of(wire, TOPIC, made.name, "retention.ms") == ("6000000", DYNAMIC_DEFAULT_BROKER))
        assert alter(wire, BROKER, "0", ("log.retention.ms", SET, "5000000")) == Error.NONE
        eventually(lambda: value_of(wire, TOPIC, made.name, "retention.ms") == ("5000000", DYNAMIC_BROKER))
    finally:
        for name in ("", "0"):
            alter(wire, BROKER, name, ("log.retention.ms", DELETE, None))
    eventually(lambda: value_of(wire, TOPIC, made.name, "retention.ms") == ("604800000", DEFAULT))


def test_config_resources_are_listed(wire: Wire, made: Topic) -> None:
    listed = wire.call("ListConfigResources", 1, resource_types=[TOPIC, BROKER])
    resources = {(resource.resource_type, resource.resource_name) for resource in listed.config_resources}
    assert {(TOPIC, made.name), (BROKER, "0")} <= resources
    assert wire.call("ListConfigResources", 1, resource_types=[99]).error_code == Error.UNSUPPORTED_VERSION
    assert wire.call("ListConfigResources", 0).config_resources == []
