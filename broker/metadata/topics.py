"""What the controller decides about topics: pure functions from an image and a request to records, or a refusal."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.broker.config import BrokerConfig, ConfigError, validate_topic_configs
from tidemark.broker.core.errors import Refused
from tidemark.broker.core.sliced_work import Job, at_once
from tidemark.broker.metadata.directories import of_new_replicas
from tidemark.broker.metadata.image import TOPIC_RESOURCE, Image, PartitionImage, TopicImage, partition_record
from tidemark.broker.metadata.partitions import fresh
from tidemark.broker.metadata.placement import spread
from tidemark.broker.metadata.records import ConfigRecord, Record, RemoveTopicRecord, TopicRecord
from tidemark.protocol.errors import ErrorCode

NAME_LENGTH_MAX: Final = 249
PARTITIONS_MAX: Final = 100_000  # of one topic
PARTITIONS_MAX_PER_REQUEST: Final = 10_000  # as in Kafka
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

Charge = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    topic_id: bytes
    partitions: int  # -1 leaves it to num.partitions
    replication_factor: int  # -1 leaves it to default.replication.factor
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)


def check_topic_name(name: str) -> None:
    if problem := _name_problem(name):
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name {name[:300]!r} is not legal: {problem}.")


def _name_problem(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return "it cannot be '.' or '..'"
    if len(name) > NAME_LENGTH_MAX:
        return f"it is longer than {NAME_LENGTH_MAX} characters"
    if not _LEGAL.fullmatch(name):
        return "only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def check_partitions_of_request(count: int) -> None:
    """Before anything is built for them."""
    if count > PARTITIONS_MAX_PER_REQUEST:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"{count} partitions are too many for one request; {PARTITIONS_MAX_PER_REQUEST} are possible.",
        )


def free_of_charge(_partitions: int) -> None:
    pass


def create_topics(
    image: Image, new_topics: Sequence[NewTopic], broker: BrokerConfig, charge: Charge = free_of_charge
) -> Job[tuple[list[Record], dict[str, Refused]]]:
    """The records of all that can be created, and why the others cannot. The time grows with the request only.

    `charge` is told of the partitions of each topic, and may refuse it.
    """
    count = 0
    for new_topic in new_topics:
        default = new_topic.partitions if new_topic.partitions > 0 else broker.num_partitions
        count += len(new_topic.assignments) or default
        yield
    try:
        check_partitions_of_request(count)
    except Refused as too_many:
        return [], dict.fromkeys((new_topic.name for new_topic in new_topics), too_many)
    by_metric_name = {metric_name(name): name for name in image.topics}
    records: list[Record] = []
    refused: dict[str, Refused] = {}
    for new_topic in new_topics:
        yield
        try:
            records += yield from _create(image, new_topic, broker, by_metric_name, charge)
        except Refused as refusal:
            refused[new_topic.name] = refusal
            continue
        by_metric_name[metric_name(new_topic.name)] = new_topic.name
    return records, refused


def create_topic(image: Image, new_topic: NewTopic, broker: BrokerConfig) -> list[Record]:
    return at_once(_create(image, new_topic, broker, {metric_name(name): name for name in image.topics}))


def metric_name(topic: str) -> str:
    """Metric names turn '.' into '_', so Kafka keeps 'a.b' and 'a_b' apart by refusing the second."""
    return topic.replace(".", "_")


def _create(
    image: Image,
    new_topic: NewTopic,
    broker: BrokerConfig,
    by_metric_name: Mapping[str, str],
    charge: Charge = free_of_charge,
) -> Job[list[Record]]:
    check_topic_name(new_topic.name)
    clash = by_metric_name.get(metric_name(new_topic.name))
    if clash == new_topic.name:
        raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new_topic.name}' already exists.")
    if clash is not None:
        raise Refused(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{new_topic.name}' collides with existing topic '{clash}'."
        )
    placement = _placement(image, new_topic, broker, topics=len(by_metric_name))
    _check_configs(new_topic.configs, broker)
    charge(len(placement))
    records: list[Record] = [TopicRecord(name=new_topic.name, topic_id=new_topic.topic_id)]
    for index, replicas in enumerate(placement):
        records.append(partition_record(new_topic.topic_id, index, _fresh(image, replicas)))
        yield
    records += [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=new_topic.name, name=name, value=value)
        for name, value in new_topic.configs.items()
    ]
    return records


def _check_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    try:
        validate_topic_configs(configs, broker=broker)
    except ConfigError as error:
        raise Refused(ErrorCode.INVALID_CONFIG, str(error)) from error


def _placement(image: Image, new_topic: NewTopic, broker: BrokerConfig, *, topics: int) -> list[Sequence[int]]:
    if new_topic.assignments:
        if new_topic.partitions != -1 or new_topic.replication_factor != -1:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                "A manual assignment was given, so the partition count and replication factor must both be -1.",
            )
        return manual_placement(image, new_topic.assignments, first=0)
    partitions = broker.num_partitions if new_topic.partitions == -1 else new_topic.partitions
    factor = broker.default_replication_factor if new_topic.replication_factor == -1 else new_topic.replication_factor
    if not 0 < partitions <= PARTITIONS_MAX:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be 1 to {PARTITIONS_MAX}, not {partitions}."
        )
    return spread(image, partitions=partitions, replication_factor=factor, first=0, topics=topics)


def manual_placement(
    image: Image, assignments: Sequence[tuple[int, Sequence[int]]], *, first: int
) -> list[Sequence[int]]:
    by_index = dict(assignments)
    expected = range(first, first + len(assignments))
    if len(by_index) != len(assignments) or sorted(by_index) != list(expected):
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partitions must be numbered {first} to {expected[-1]}, each once."
        )
    placement = [by_index[index] for index in expected]
    for index, replicas in zip(expected, placement, strict=True):
        _check_replicas(image, index, replicas)
    if len({len(replicas) for replicas in placement}) > 1:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have the same number of replicas.")
    return placement


def _check_replicas(image: Image, index: int, replicas: Sequence[int]) -> None:
    if not replicas:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} has no replicas.")
    if len(set(replicas)) != len(replicas):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} names a broker twice.")
    unknown = sorted(set(replicas) - image.brokers.keys())
    if unknown:
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Partition {index} names unknown broker(s) {unknown}.")


def _fresh(image: Image, replicas: Sequence[int]) -> PartitionImage:
    if not any(map(image.is_active, replicas)):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"All of the brokers {list(replicas)} are fenced.")
    return fresh(replicas, is_active=image.is_active, directories=of_new_replicas(image, replicas))


def existing_topic(image: Image, name: str) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{name}'.")
    return topic


def delete_topic(topic: TopicImage) -> list[Record]:
    return [RemoveTopicRecord(topic_id=topic.topic_id)]


def add_partitions(
    image: Image, topic: TopicImage, *, count: int, assignments: Sequence[Sequence[int]] | None
) -> list[Record]:
    return at_once(adding_partitions(image, topic, count=count, assignments=assignments))


def adding_partitions(
    image: Image, topic: TopicImage, *, count: int, assignments: Sequence[Sequence[int]] | None
) -> Job[list[Record]]:
    have = len(topic.partitions)
    if count <= have:
        raise Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{topic.name}' has {have} partition(s); the new total must be greater, not {count}.",
        )
    if count > PARTITIONS_MAX:
        raise Refused(ErrorCode.INVALID_PARTITIONS, f"A topic may have at most {PARTITIONS_MAX} partitions.")
    factor = len(topic.partitions[0].replicas)
    if assignments is None:
        placement = spread(image, partitions=count - have, replication_factor=factor, first=have)
    elif len(assignments) != count - have:
        raise Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{count - have} partition(s) are added, but {len(assignments)} assignment(s) were given.",
        )
    else:
        placement = manual_placement(image, list(enumerate(assignments, start=have)), first=have)
        if any(len(replicas) != factor for replicas in placement):
            raise Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The partitions of topic '{topic.name}' have {factor} replica(s), and so must the new ones.",
            )
    records: list[Record] = []
    for step, replicas in enumerate(placement):
        records.append(partition_record(topic.topic_id, have + step, _fresh(image, replicas)))
        yield
    return records
