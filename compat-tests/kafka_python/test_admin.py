"""kafka-python: topics and configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness.broker_process import BrokerProcess
from harness.kafka_python_client import consumer, produce_all
from harness.waiting import eventually
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)


def described(admin: KafkaAdminClient, topic: str) -> Any:
    return admin.describe_topics([topic])[0]


def config_values(admin: KafkaAdminClient, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], config_filter="all")
    (by_name,) = found.values()
    return {name: entry["value"] for name, entry in by_name[topic].items()}


def test_create_list_and_describe(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    assert topic in admin.list_topics()
    partitions = described(admin, topic)["partitions"]
    assert sorted(partition["partition_index"] for partition in partitions) == [0, 1, 2]
    assert all((p["leader_id"], p["replica_nodes"], p["isr_nodes"]) == (0, [0], [0]) for p in partitions)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"replication_factor": 3}, InvalidReplicationFactorError),
        ({"num_partitions": 0}, InvalidPartitionsError),
        ({"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
    ],
)
def test_create_what_is_wrong(
    admin: KafkaAdminClient, topic: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1, **options}})


def test_create_what_exists_or_is_badly_named(admin: KafkaAdminClient, made: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([made])
    with pytest.raises(InvalidTopicError):
        admin.create_topics(["bad name"])


def test_validate_only_creates_nothing(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_topics([topic], validate_only=True)
    assert topic not in admin.list_topics()


def test_partitions_are_added(admin: KafkaAdminClient, made: str) -> None:
    admin.create_partitions({made: 4})
    eventually(lambda: len(described(admin, made)["partitions"]) == 4)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({made: 2})


def test_topic_config_is_described_altered_and_reset(admin: KafkaAdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(retention_ms="100000")
    assert config_values(admin, topic)["retention.ms"] == "100000"
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"segment.bytes": "2000000"})])
    eventually(lambda: config_values(admin, topic)["segment.bytes"] == "2000000")
    assert config_values(admin, topic)["retention.ms"] == "100000"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": None})])
    eventually(lambda: config_values(admin, topic)["retention.ms"] == "604800000")


def test_cluster_is_described(admin: KafkaAdminClient, broker: BrokerProcess) -> None:
    cluster = admin.describe_cluster()
    assert cluster["cluster_id"]
    assert [(node["broker_id"], node["port"]) for node in cluster["brokers"]] == [(0, broker.port)]


def test_delete(admin: KafkaAdminClient, made: str) -> None:
    admin.delete_topics([made])
    eventually(lambda: made not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([made])


def test_records_are_deleted(admin: KafkaAdminClient, made: str, broker: BrokerProcess) -> None:
    produce_all(broker.bootstrap, made, [b"%d" % number for number in range(10)])
    partition = TopicPartition(made, 0)
    admin.delete_records({partition: 4})
    with consumer(broker.bootstrap) as reader:
        assert (reader.beginning_offsets([partition])[partition], reader.end_offsets([partition])[partition]) == (4, 10)
