from __future__ import annotations

import pytest

from tidemark.broker.config import (
    BrokerConfig,
    ConfigError,
    GroupConfig,
    Source,
    describe_group,
    validate_group_configs,
)

BROKER = BrokerConfig()


def test_a_group_takes_what_it_does_not_set_from_the_broker():
    resolved = GroupConfig.resolve(BROKER, {"consumer.session.timeout.ms": "50000"})
    assert resolved == GroupConfig(consumer_session_timeout_ms=50_000, consumer_heartbeat_interval_ms=5_000)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ({"consumer.session.timeout.ms": "44999"}, "at least group.consumer.min.session.timeout.ms"),
        ({"consumer.session.timeout.ms": "60001"}, "at most group.consumer.max.session.timeout.ms"),
        ({"consumer.heartbeat.interval.ms": "1"}, "at least group.consumer.min.heartbeat.interval.ms"),
        ({"consumer.heartbeat.interval.ms": "soon"}, "whole number"),
        ({"consumer.sesion.timeout.ms": "50000"}, "did you mean consumer.session.timeout.ms"),
    ],
)
def test_what_a_group_may_not_have(overrides, complaint):
    with pytest.raises(ConfigError, match=complaint):
        validate_group_configs(overrides, broker=BROKER)


def test_a_session_must_be_longer_than_a_heartbeat():
    broker = BrokerConfig(group_consumer_min_session_timeout_ms=1, group_consumer_max_heartbeat_interval_ms=90_000)
    with pytest.raises(ConfigError, match="greater than consumer"):
        validate_group_configs({"consumer.session.timeout.ms": "5000"}, broker=broker)


def test_a_description_names_where_each_value_comes_from():
    entries = describe_group(
        BROKER, dynamic_cluster={}, dynamic_broker={}, group_overrides={"consumer.session.timeout.ms": "50000"}
    )
    assert [(entry.name, entry.value, entry.source) for entry in entries] == [
        ("consumer.heartbeat.interval.ms", "5000", Source.DEFAULT_CONFIG),
        ("consumer.session.timeout.ms", "50000", Source.GROUP_CONFIG),
    ]
