"""confluent-kafka: topics and configurations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from harness.broker_process import BrokerProcess
from harness.confluent_client import produce_all
from harness.waiting import eventually


def topic_config(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.TOPIC, name)
    return dict(admin.describe_configs([resource])[resource].result(20))


def error_of(future: object) -> int:
    with pytest.raises(KafkaException) as caught:
        future.result(20)  # type: ignore[attr-defined]
    return int(caught.value.args[0].code())


def test_create_list_and_describe(admin: AdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(partitions=3)
    listed = admin.list_topics(timeout=20).topics
    assert sorted(listed[topic].partitions) == [0, 1, 2]
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(20)
    assert [(p.id, p.leader.id, [node.id for node in p.isr]) for p in described.partitions] == [
        (i, 0, [0]) for i in range(3)
    ]
    assert str(described.topic_id)


def test_create_what_exists_or_is_wrong(admin: AdminClient, made: str, topic: str) -> None:
    assert error_of(admin.create_topics([NewTopic(made, 1, 1)])[made]) == KafkaError.TOPIC_ALREADY_EXISTS
    other = f"{topic}-other"
    assert error_of(admin.create_topics([NewTopic(other, 1, 3)])[other]) == KafkaError.INVALID_REPLICATION_FACTOR
    wrong = NewTopic(other, 1, 1, config={"retention.ms": "soon"})
    assert error_of(admin.create_topics([wrong])[other]) == KafkaError.INVALID_CONFIG
    assert error_of(admin.create_topics([NewTopic("bad name", 1, 1)])["bad name"]) == KafkaError.TOPIC_EXCEPTION


def test_validate_only_creates_nothing(admin: AdminClient, topic: str) -> None:
    admin.create_topics([NewTopic(topic, 2, 1)], validate_only=True)[topic].result(20)
    assert topic not in admin.list_topics(timeout=20).topics


def test_partitions_are_added(admin: AdminClient, made: str) -> None:
    admin.create_partitions([NewPartitions(made, 4)])[made].result(20)
    eventually(lambda: len(admin.list_topics(made, timeout=20).topics[made].partitions) == 4)
    assert error_of(admin.create_partitions([NewPartitions(made, 2)])[made]) == KafkaError.INVALID_PARTITIONS


def test_topic_config_is_described_and_altered(admin: AdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic(retention_ms="100000")
    before = topic_config(admin, topic)
    assert (before["retention.ms"].value, before["segment.bytes"].value) == ("100000", "1073741824")
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("segment.bytes", "2000000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE),
            ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(20)

    def is_changed() -> bool:
        after = topic_config(admin, topic)
        values = (after["segment.bytes"].value, after["retention.ms"].value, after["cleanup.policy"].value)
        return values == ("2000000", "604800000", "delete,compact")

    eventually(is_changed)
    bad = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("segment.bytes", "x", incremental_operation=AlterConfigOpType.SET)],
    )
    assert error_of(admin.incremental_alter_configs([bad])[bad]) == KafkaError.INVALID_CONFIG


def test_broker_config_and_cluster_are_described(admin: AdminClient, broker: BrokerProcess) -> None:
    resource = ConfigResource(ResourceType.BROKER, "0")
    configs = admin.describe_configs([resource])[resource].result(20)
    assert configs["num.partitions"].value == "1"
    cluster = admin.describe_cluster().result(20)
    assert cluster.cluster_id
    assert [(node.id, node.port) for node in cluster.nodes] == [(0, broker.port)]


def test_delete(admin: AdminClient, made: str) -> None:
    admin.delete_topics([made])[made].result(20)
    eventually(lambda: made not in admin.list_topics(timeout=20).topics)
    assert error_of(admin.delete_topics([made])[made]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_records_are_deleted_and_offsets_listed(admin: AdminClient, made: str, broker: BrokerProcess) -> None:
    produce_all(broker.bootstrap, made, [b"%d" % number for number in range(10)])
    upto = TopicPartition(made, 0, 4)
    assert admin.delete_records([upto])[upto].result(20).low_watermark == 4
    partition = TopicPartition(made, 0)
    for spec, expected in (
        (OffsetSpec.earliest(), 4),
        (OffsetSpec.latest(), 10),
    ):
        listed = admin.list_offsets({partition: spec})[partition].result(20)
        assert listed.offset == expected
