"""Topics by hand: creation, growth, deletion, and how metadata tells of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from harness.broker_process import BrokerProcess
from harness.errors import Error
from harness.requests import NO_ID, creatable, create_topics, metadata
from harness.topic import Topic, TopicMaker
from harness.waiting import eventually
from harness.wire import Wire


def configs(**values: str | None) -> list[dict[str, str | None]]:
    return [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]


def assigned(*replicas: list[int], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + index, "broker_ids": brokers} for index, brokers in enumerate(replicas)]


MANUAL = {"num_partitions": -1, "replication_factor": -1}

REFUSED: dict[str, tuple[dict[str, Any], Error]] = {
    "replication factor above the brokers": ({"replication_factor": 3}, Error.INVALID_REPLICATION_FACTOR),
    "replication factor 0": ({"replication_factor": 0}, Error.INVALID_REPLICATION_FACTOR),
    "replication factor -2": ({"replication_factor": -2}, Error.INVALID_REPLICATION_FACTOR),
    "0 partitions": ({"num_partitions": 0}, Error.INVALID_PARTITIONS),
    "-2 partitions": ({"num_partitions": -2}, Error.INVALID_PARTITIONS),
    "config value": ({"configs": configs(retention_ms="soon")}, Error.INVALID_CONFIG),
    "config name": ({"configs": configs(no_such_key="1")}, Error.INVALID_CONFIG),
    "config null": ({"configs": configs(retention_ms=None)}, Error.INVALID_CONFIG),
    "unknown broker": ({**MANUAL, "assignments": assigned([5])}, Error.INVALID_REPLICA_ASSIGNMENT),
    "assignment with a gap": ({**MANUAL, "assignments": assigned([0], first=1)}, Error.INVALID_REPLICA_ASSIGNMENT),
    "a broker twice": ({**MANUAL, "assignments": assigned([0, 0])}, Error.INVALID_REPLICA_ASSIGNMENT),
    "no broker": ({**MANUAL, "assignments": assigned([])}, Error.INVALID_REPLICA_ASSIGNMENT),
    "a partition twice": ({**MANUAL, "assignments": assigned([0]) * 2}, Error.INVALID_REPLICA_ASSIGNMENT),
    "assignment and count": ({"replication_factor": -1, "assignments": assigned([0])}, Error.INVALID_REQUEST),
    "assignment and factor": ({"num_partitions": -1, "assignments": assigned([0])}, Error.INVALID_REQUEST),
}


@pytest.mark.parametrize("validate_only", [False, True], ids=["create", "validate only"])
@pytest.mark.parametrize(("changes", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_topic_is_refused(
    wire: Wire, topic: str, changes: dict[str, Any], error: Error, validate_only: bool
) -> None:
    answer = create_topics(wire, creatable(topic, **changes), validate_only=validate_only)
    assert Error(answer[topic].error_code) == error
    assert answer[topic].error_message
    assert metadata(wire, topic).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


BAD_NAMES = ["bad name", "", ".", "..", "a/b", "x" * 250, "ümlaut"]


@pytest.mark.parametrize("name", BAD_NAMES, ids=range(len(BAD_NAMES)))
def test_bad_name_is_refused_everywhere(wire: Wire, name: str) -> None:
    answer = create_topics(wire, creatable(name))
    assert answer[name].error_code == Error.INVALID_TOPIC_EXCEPTION
    assert metadata(wire, name, auto_create=True).topics[0].error_code == Error.INVALID_TOPIC_EXCEPTION


def test_longest_name_is_accepted(wire: Wire) -> None:
    name = uuid.uuid4().hex.ljust(249, "x")
    assert create_topics(wire, creatable(name))[name].error_code == Error.NONE


def test_creation_answers_what_was_created(wire: Wire, topic: str) -> None:
    (created,) = create_topics(wire, creatable(topic, num_partitions=3, configs=configs(retention_ms="5000"))).values()
    assert (created.num_partitions, created.replication_factor, created.topic_config_error_code) == (3, 1, 0)
    assert created.topic_id is not None
    by_name = {config.name: config for config in created.configs}
    assert (by_name["retention.ms"].value, by_name["retention.ms"].config_source) == ("5000", 1)
    assert by_name["cleanup.policy"].value == "delete"
    told = metadata(wire, topic).topics[0]
    assert told.topic_id == created.topic_id
    assert [(p.partition_index, p.leader_id, p.leader_epoch) for p in told.partitions] == [(i, 0, 0) for i in range(3)]
    assert all((p.replica_nodes, p.isr_nodes, p.offline_replicas) == ([0], [0], []) for p in told.partitions)


def test_defaults_of_the_broker_are_asked_for_with_minus_1(wire: Wire, topic: str) -> None:
    (created,) = create_topics(wire, creatable(topic, num_partitions=-1, replication_factor=-1)).values()
    assert (created.error_code, created.num_partitions, created.replication_factor) == (Error.NONE, 1, 1)


def test_manual_assignment(wire: Wire, topic: str) -> None:
    (created,) = create_topics(wire, creatable(topic, **MANUAL, assignments=assigned([0], [0]))).values()
    assert (created.error_code, created.num_partitions) == (Error.NONE, 2)


def test_validate_only_creates_nothing(wire: Wire, topic: str) -> None:
    (answer,) = create_topics(wire, creatable(topic), validate_only=True).values()
    assert (answer.error_code, answer.num_partitions) == (Error.NONE, 1)
    assert metadata(wire, topic).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_name_twice_in_one_request_creates_neither_but_the_others(wire: Wire, topic: str) -> None:
    other = f"{topic}-other"
    answer = create_topics(wire, creatable(topic), creatable(other), creatable(topic))
    assert {name: result.error_code for name, result in answer.items()} == {
        topic: Error.INVALID_REQUEST,
        other: Error.NONE,
    }
    assert metadata(wire, topic).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def test_existing_name_is_refused(wire: Wire, made: Topic) -> None:
    assert create_topics(wire, creatable(made.name))[made.name].error_code == Error.TOPIC_ALREADY_EXISTS


def test_name_that_differs_only_in_dot_and_underscore_is_refused(wire: Wire, make_topic: TopicMaker) -> None:
    # The two would share their metrics' names.
    name = f"{uuid.uuid4().hex[:12]}.a"
    make_topic(name=name)
    twin = name.replace(".", "_")
    assert create_topics(wire, creatable(twin))[twin].error_code == Error.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", range(2, 8))
def test_every_version_of_create_topics_is_served(wire: Wire, topic: str, version: int) -> None:
    assert create_topics(wire, creatable(topic), version=version)[topic].error_code == Error.NONE


def grow(
    wire: Wire, name: str, count: int, assignments: list[list[int]] | None = None, *, validate_only: bool = False
) -> Any:
    chosen = None if assignments is None else [{"broker_ids": brokers} for brokers in assignments]
    answer = wire.call(
        "CreatePartitions", 3, timeout_ms=5000, validate_only=validate_only,
        topics=[{"name": name, "count": count, "assignments": chosen}],
    )  # fmt: skip
    return answer.results[0].error_code


def partition_count(wire: Wire, name: str) -> int:
    return len(metadata(wire, name).topics[0].partitions)


def test_partitions_are_added(wire: Wire, made: Topic) -> None:
    assert grow(wire, made.name, 3, validate_only=True) == Error.NONE
    assert partition_count(wire, made.name) == 1
    assert grow(wire, made.name, 3) == Error.NONE
    eventually(lambda: partition_count(wire, made.name) == 3)
    assert grow(wire, made.name, 5, [[0], [0]]) == Error.NONE
    eventually(lambda: partition_count(wire, made.name) == 5)


@pytest.mark.parametrize(
    ("count", "assignments", "error"),
    [
        (2, None, Error.INVALID_PARTITIONS),
        (1, None, Error.INVALID_PARTITIONS),
        (-1, None, Error.INVALID_PARTITIONS),
        (4, [[0]], Error.INVALID_REPLICA_ASSIGNMENT),
        (3, [[9]], Error.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_bad_growth_is_refused(
    wire: Wire, make_topic: TopicMaker, count: int, assignments: list[list[int]] | None, error: Error
) -> None:
    topic = make_topic(partitions=2)
    assert grow(wire, topic.name, count, assignments) == error
    assert partition_count(wire, topic.name) == 2


def test_growth_of_an_unknown_topic(wire: Wire) -> None:
    assert grow(wire, "no-such-topic", 3) == Error.UNKNOWN_TOPIC_OR_PARTITION


def delete(wire: Wire, *topics: tuple[str | None, uuid.UUID]) -> list[tuple[str | None, Error]]:
    answer = wire.call(
        "DeleteTopics", 6, topics=[{"name": name, "topic_id": topic_id} for name, topic_id in topics], timeout_ms=5000
    )
    return [(result.name, Error(result.error_code)) for result in answer.responses]


def is_gone(wire: Wire, topic: Topic) -> bool:
    return bool(metadata(wire, topic.name).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION)


def test_delete_by_name_and_by_id(wire: Wire, make_topic: TopicMaker) -> None:
    by_name, by_id = make_topic(), make_topic()
    assert delete(wire, (by_name.name, NO_ID)) == [(by_name.name, Error.NONE)]
    assert delete(wire, (None, by_id.id)) == [(by_id.name, Error.NONE)]
    eventually(lambda: is_gone(wire, by_name) and is_gone(wire, by_id))


def test_delete_of_what_is_not_there_or_not_clear(wire: Wire, made: Topic) -> None:
    assert delete(wire, ("no-such-topic", NO_ID)) == [("no-such-topic", Error.UNKNOWN_TOPIC_OR_PARTITION)]
    assert delete(wire, (None, uuid.uuid4())) == [(None, Error.UNKNOWN_TOPIC_ID)]
    assert delete(wire, (made.name, made.id)) == [(made.name, Error.INVALID_REQUEST)]
    assert delete(wire, (None, NO_ID)) == [(None, Error.INVALID_REQUEST)]
    assert delete(wire, (made.name, NO_ID), (made.name, NO_ID)) == [(made.name, Error.INVALID_REQUEST)]
    assert not is_gone(wire, made)


def test_recreated_topic_is_empty_and_has_another_id(wire: Wire, made: Topic, make_topic: TopicMaker) -> None:
    delete(wire, (made.name, NO_ID))
    eventually(lambda: is_gone(wire, made))
    again = make_topic(name=made.name)
    assert again.id != made.id


def test_metadata_by_id(wire: Wire, made: Topic) -> None:
    answer = wire.call("Metadata", 12, topics=[{"topic_id": made.id, "name": None}], allow_auto_topic_creation=False)
    assert [(topic.name, topic.topic_id) for topic in answer.topics] == [(made.name, made.id)]
    answer = wire.call(
        "Metadata", 12, topics=[{"topic_id": uuid.uuid4(), "name": None}], allow_auto_topic_creation=True
    )
    assert [topic.error_code for topic in answer.topics] == [Error.UNKNOWN_TOPIC_ID]


def test_metadata_of_all_topics_and_of_none(wire: Wire, made: Topic) -> None:
    everything = wire.call("Metadata", 12, topics=None, allow_auto_topic_creation=False)
    assert made.name in [topic.name for topic in everything.topics]
    assert metadata(wire).topics == []
    # Version 0 has no null: its empty list means all.
    assert made.name in [topic.name for topic in wire.call("Metadata", 0, topics=[]).topics]


def test_metadata_names_the_cluster(wire: Wire, broker: BrokerProcess) -> None:
    answer = metadata(wire)
    assert [(node.node_id, node.host, node.port, node.rack) for node in answer.brokers] == [
        (0, broker.host, broker.port, None)
    ]
    assert answer.cluster_id
    assert answer.controller_id == 0
    cluster = wire.call(
        "DescribeCluster", 2, include_cluster_authorized_operations=False, endpoint_type=1, include_fenced_brokers=False
    )
    assert (cluster.error_code, cluster.cluster_id, cluster.controller_id) == (Error.NONE, answer.cluster_id, 0)
    assert [(node.broker_id, node.port, node.is_fenced) for node in cluster.brokers] == [(0, broker.port, False)]


@pytest.mark.parametrize("version", range(14))
def test_every_version_of_metadata_is_served(wire: Wire, made: Topic, version: int) -> None:
    (topic,) = metadata(wire, made.name, version=version).topics
    assert (topic.error_code, len(topic.partitions)) == (Error.NONE, 1)


def test_auto_creation_when_asked(wire: Wire, topic: str) -> None:
    assert metadata(wire, topic).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    first = metadata(wire, topic, auto_create=True).topics[0].error_code
    # Apache Kafka says "unknown" while it creates; to say "there it is" at once is as good for every client.
    assert first in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NONE)
    eventually(lambda: metadata(wire, topic).topics[0].error_code == Error.NONE, what="the topic is created")


def test_auto_creation_can_be_off(new_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = new_broker({"auto.create.topics.enable": "false"})
    with Wire(broker.host, broker.port) as wire:
        for _ in range(3):
            assert metadata(wire, topic, auto_create=True).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION


def describe(
    wire: Wire, names: list[str], *, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[Any, Any]:
    after = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    answer = wire.call(
        "DescribeTopicPartitions", 0, topics=[{"name": name} for name in names], response_partition_limit=limit,
        cursor=after,
    )  # fmt: skip
    listed = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
    rest = answer.next_cursor
    return listed, None if rest is None else (rest.topic_name, rest.partition_index)


@pytest.fixture
def two(make_topic: TopicMaker) -> tuple[str, str]:
    """Two topics in the order of their names, of three and five partitions."""
    stem = uuid.uuid4().hex[:10]
    return make_topic(name=f"{stem}-a", partitions=3).name, make_topic(name=f"{stem}-b", partitions=5).name


def test_topic_partitions_are_described_in_order_of_name(wire: Wire, two: tuple[str, str]) -> None:
    a, b = two
    assert describe(wire, [b, a, a]) == ([(a, 0, [0, 1, 2]), (b, 0, [0, 1, 2, 3, 4])], None)


def test_topic_partitions_come_in_pages(wire: Wire, two: tuple[str, str]) -> None:
    a, b = two
    assert describe(wire, [a, b], limit=2) == ([(a, 0, [0, 1])], (a, 2))
    assert describe(wire, [a, b], limit=2, cursor=(a, 2)) == ([(a, 0, [2]), (b, 0, [0])], (b, 1))
    assert describe(wire, [a, b], limit=20, cursor=(b, 1)) == ([(b, 0, [1, 2, 3, 4])], None)
    assert describe(wire, [a, b], limit=5) == ([(a, 0, [0, 1, 2]), (b, 0, [0, 1])], (b, 2))
    assert describe(wire, [a, b], limit=8) == ([(a, 0, [0, 1, 2]), (b, 0, [0, 1, 2, 3, 4])], None)


def test_topic_partitions_of_unknown_and_bad_names(wire: Wire, two: tuple[str, str]) -> None:
    listed, _ = describe(wire, ["zz-no-such-topic", "bad name", two[0]])
    assert {name: error for name, error, _ in listed} == {
        "bad name": Error.INVALID_TOPIC_EXCEPTION,
        "zz-no-such-topic": Error.UNKNOWN_TOPIC_OR_PARTITION,
        two[0]: Error.NONE,
    }


@pytest.mark.parametrize("cursor", [("zzz", 0), ("aaa", 0)])
def test_cursor_of_a_topic_not_asked_for_is_refused(wire: Wire, two: tuple[str, str], cursor: tuple[str, int]) -> None:
    listed, _ = describe(wire, list(two), cursor=cursor)
    assert [error for _, error, _ in listed] == [Error.INVALID_REQUEST] * 2
