"""What the controller decides about topics."""

from __future__ import annotations

import pytest

from tidemark.broker.config import load_config
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import at_once
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image
from tidemark.broker.metadata.records import RegisterBrokerRecord
from tidemark.broker.metadata.topics import (
    NewTopic,
    add_partitions,
    check_topic_name,
    create_topic,
    create_topics,
    delete_topic,
)
from tidemark.protocol.errors import ErrorCode

BROKER = load_config(overrides={"num.partitions": 3})


def image_of(*brokers: int) -> Image:
    return Image().apply(RegisterBrokerRecord(broker_id=broker, broker_epoch=1) for broker in brokers)


def new_topic(name: str = "topic", partitions: int = -1, factor: int = -1, **rest: object) -> NewTopic:
    return NewTopic(name=name, topic_id=b"%16d" % 7, partitions=partitions, replication_factor=factor, **rest)  # type: ignore[arg-type]


def refusal_of(action: object, *arguments: object, **named: object) -> ErrorCode:
    with pytest.raises(Refused) as refusal:
        action(*arguments, **named)  # type: ignore[operator]
    return refusal.value.code


def test_defaults_fill_what_is_left_open() -> None:
    image = image_of(0).apply(create_topic(image_of(0), new_topic(), BROKER))
    topic = image.topics["topic"]
    assert [p.replicas for p in topic.partitions] == [(0,), (0,), (0,)]
    assert image.topic_by_id(topic.topic_id) is topic


def test_replicas_are_spread_over_the_brokers() -> None:
    image = image_of(1, 2, 3)
    image = image.apply(create_topic(image, new_topic(partitions=3, factor=2), BROKER))
    assert [p.replicas for p in image.topics["topic"].partitions] == [(1, 2), (2, 3), (3, 1)]
    assert [p.leader for p in image.topics["topic"].partitions] == [1, 2, 3]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a/b", "a\n"])
def test_illegal_names_are_refused(name: str) -> None:
    assert refusal_of(check_topic_name, name) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "__internal"])
def test_legal_names_are_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (new_topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (new_topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (new_topic(partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (new_topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic(factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic(configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (new_topic(configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (new_topic(partitions=1, assignments=[(0, [0])]), ErrorCode.INVALID_REQUEST),
        (new_topic(assignments=[(1, [0])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(assignments=[(0, [0]), (0, [0])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(assignments=[(0, [0, 0])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (new_topic(assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_impossible_wishes_are_refused(asked: NewTopic, code: ErrorCode) -> None:
    assert refusal_of(create_topic, image_of(0), asked, BROKER) == code


def test_a_topic_exists_once_and_its_metric_name_too() -> None:
    image = image_of(0)
    image = image.apply(create_topic(image, new_topic("a.b"), BROKER))
    assert refusal_of(create_topic, image, new_topic("a.b"), BROKER) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal_of(create_topic, image, new_topic("a_b"), BROKER) == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_deleting_a_topic_takes_its_settings_with_it() -> None:
    image = image_of(0)
    image = image.apply(create_topic(image, new_topic(configs={"retention.ms": "5"}), BROKER))
    assert image.config_of(TOPIC_RESOURCE, "topic") == {"retention.ms": "5"}
    image = image.apply(delete_topic(image.topics["topic"]))
    assert not image.topics
    assert not image.topic_names
    assert not image.configs


def test_partitions_are_only_added() -> None:
    image = image_of(0)
    image = image.apply(create_topic(image, new_topic(partitions=2), BROKER))
    topic = image.topics["topic"]
    assert refusal_of(add_partitions, image, topic, count=2, assignments=None) == ErrorCode.INVALID_PARTITIONS
    assert refusal_of(add_partitions, image, topic, count=4, assignments=[[0]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    grown = image.apply(add_partitions(image, topic, count=5, assignments=None))
    assert len(grown.topics["topic"].partitions) == 5
    assert len(image.topics["topic"].partitions) == 2, "an image that is in use does not change"


def test_the_limit_of_a_request_counts_what_is_left_to_the_default() -> None:
    broker = load_config(overrides={"num.partitions": 5_000})
    wanted = [new_topic(name) for name in ("a", "b", "c")]
    records, refused = at_once(create_topics(image_of(0), wanted, broker))
    assert not records
    assert {refusal.code for refusal in refused.values()} == {ErrorCode.POLICY_VIOLATION}
