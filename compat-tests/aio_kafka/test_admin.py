"""aiokafka: topics and configurations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code
from harness.aiokafka_client import consumer, produce_all
from harness.broker_process import BrokerProcess
from harness.errors import Error
from harness.waiting import eventually_async


async def config_values(admin: AIOKafkaAdminClient, topic: str) -> dict[str, str]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    ((code, message, _, _, entries),) = answer.resources
    assert code == 0, message
    return {entry[0]: entry[1] for entry in entries}


async def partitions_of(admin: AIOKafkaAdminClient, topic: str) -> list[Any]:
    (told,) = await admin.describe_topics([topic])
    return list(told["partitions"])


async def test_create_list_and_describe(admin: AIOKafkaAdminClient, make_topic: Callable[..., Any]) -> None:
    topic = await make_topic(partitions=3)
    assert topic in await admin.list_topics()
    partitions = await partitions_of(admin, topic)
    assert sorted(partition["partition"] for partition in partitions) == [0, 1, 2]
    assert all((p["leader"], p["replicas"], p["isr"]) == (0, [0], [0]) for p in partitions)


@pytest.mark.parametrize(
    ("new", "error"),
    [
        (("t", 1, 3, {}), Error.INVALID_REPLICATION_FACTOR),
        (("t", 0, 1, {}), Error.INVALID_PARTITIONS),
        (("t", 1, 1, {"retention.ms": "soon"}), Error.INVALID_CONFIG),
        (("bad name", 1, 1, {}), Error.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_create_what_is_wrong(
    admin: AIOKafkaAdminClient, topic: str, new: tuple[str, int, int, dict[str, str]], error: Error
) -> None:
    name, partitions, factor, configs = new
    wanted = NewTopic(topic if name == "t" else name, partitions, factor, topic_configs=configs)
    answer = await admin.create_topics([wanted])
    assert [result[1] for result in answer.topic_errors] == [error]
    assert for_code(error).errno == error


async def test_create_what_exists(admin: AIOKafkaAdminClient, made: str) -> None:
    answer = await admin.create_topics([NewTopic(made, 1, 1)])
    assert [result[1] for result in answer.topic_errors] == [Error.TOPIC_ALREADY_EXISTS]


async def test_partitions_are_added(admin: AIOKafkaAdminClient, made: str) -> None:
    await admin.create_partitions({made: NewPartitions(4)})

    async def has_four() -> bool:
        return len(await partitions_of(admin, made)) == 4

    await eventually_async(has_four)


async def test_topic_config_is_described_and_altered(
    admin: AIOKafkaAdminClient, make_topic: Callable[..., Any]
) -> None:
    topic = await make_topic(retention_ms="100000")
    assert (await config_values(admin, topic))["retention.ms"] == "100000"
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs={"segment.bytes": "2000000"})])

    async def is_replaced() -> bool:
        values = await config_values(admin, topic)
        return (values["segment.bytes"], values["retention.ms"]) == ("2000000", "604800000")

    await eventually_async(is_replaced)


async def test_cluster_is_described(admin: AIOKafkaAdminClient, broker: BrokerProcess) -> None:
    cluster = await admin.describe_cluster()
    assert [(node["node_id"], node["port"]) for node in cluster["brokers"]] == [(0, broker.port)]


async def test_delete(admin: AIOKafkaAdminClient, made: str) -> None:
    await admin.delete_topics([made])

    async def is_gone() -> bool:
        return made not in await admin.list_topics()

    await eventually_async(is_gone)


async def test_records_are_deleted(admin: AIOKafkaAdminClient, made: str, broker: BrokerProcess) -> None:
    await produce_all(broker.bootstrap, made, [b"%d" % number for number in range(10)])
    partition = TopicPartition(made, 0)
    await admin.delete_records({partition: RecordsToDelete(before_offset=4)})
    async with consumer(broker.bootstrap) as reader:
        assert (await reader.beginning_offsets([partition]))[partition] == 4
        assert (await reader.end_offsets([partition]))[partition] == 10
