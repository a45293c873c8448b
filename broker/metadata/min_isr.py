"""min.insync.replicas: one value for the whole cluster, so that the leaders and the controller never disagree.

Replicas that are not in sync stay eligible to lead (KIP-966) because nothing is committed while fewer than
min.insync.replicas are in sync. That holds only if the leader that commits and the controller that elects mean the same
number, and only until the number changes. So, as in Apache Kafka with eligible leader replicas: the controller writes
its own value into the metadata as the cluster's, brokers cannot have values of their own, and a change ends the
eligibility of all replicas that it concerns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tidemark.broker.config import BrokerConfig
from tidemark.broker.core.errors import Refused
from tidemark.broker.metadata.image import (
    BROKER_RESOURCE,
    CLUSTER_DEFAULT,
    NO_LEADER,
    TOPIC_RESOURCE,
    Image,
    TopicImage,
    partition_record,
)
from tidemark.broker.metadata.records import ConfigRecord, PartitionRecord, Record
from tidemark.protocol.errors import ErrorCode

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"  # of topics and of the cluster alike


def write_cluster_value(image: Image, config: BrokerConfig) -> list[Record]:
    """When a controller begins: the cluster has a value, and no broker has one of its own."""
    records: list[Record] = []
    if MIN_INSYNC_REPLICAS not in image.config_of(BROKER_RESOURCE, CLUSTER_DEFAULT):
        records.append(_config(CLUSTER_DEFAULT, str(config.min_insync_replicas)))
    for (resource_type, name), values in image.configs.items():
        if resource_type == BROKER_RESOURCE and name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in values:
            records.append(_config(name, None))
    return records


def _config(name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=name, name=MIN_INSYNC_REPLICAS, value=value)


def ignored_value(image: Image, config: BrokerConfig) -> str | None:
    """What to tell an operator whose file says something else than the cluster does."""
    own = config.explicit.get(MIN_INSYNC_REPLICAS)
    shared = image.config_of(BROKER_RESOURCE, CLUSTER_DEFAULT).get(MIN_INSYNC_REPLICAS)
    if own is None or shared is None or own == shared:
        return None
    return (
        f"{MIN_INSYNC_REPLICAS}={own} in this node's settings has no effect: the cluster's value is {shared}"
        " (it is changed with kafka-configs --entity-type brokers --entity-default)"
    )


def check_change(resource_type: int, name: str, current: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse what would give leaders and controller different values."""
    if resource_type != BROKER_RESOURCE or current.get(MIN_INSYNC_REPLICAS) == wanted.get(MIN_INSYNC_REPLICAS):
        return
    if name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in wanted:
        message = f"{MIN_INSYNC_REPLICAS} is one value for the whole cluster; it cannot be set for broker {name}."
        raise Refused(ErrorCode.INVALID_CONFIG, message)
    if name == CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS not in wanted:
        raise Refused(ErrorCode.INVALID_CONFIG, f"The cluster's {MIN_INSYNC_REPLICAS} cannot be removed, only changed.")


def end_eligibility(
    image: Image, resource_type: int, name: str, current: Mapping[str, str], wanted: Mapping[str, str]
) -> Iterator[PartitionRecord]:
    """The records that go with a change of settings: no replica stays eligible by a number that no longer holds."""
    if current.get(MIN_INSYNC_REPLICAS) == wanted.get(MIN_INSYNC_REPLICAS):
        return
    if resource_type == TOPIC_RESOURCE:
        yield from _without_eligible(image.topics[name])
    elif resource_type == BROKER_RESOURCE and name == CLUSTER_DEFAULT:
        for topic in image.topics.values():
            if MIN_INSYNC_REPLICAS not in image.config_of(TOPIC_RESOURCE, topic.name):
                yield from _without_eligible(topic)


def _without_eligible(topic: TopicImage) -> Iterator[PartitionRecord]:
    """But where nobody leads nothing was committed by the number of before, nor is by the next: those who were eligible
    are so still, and without them nobody would ever lead again."""
    for index, partition in enumerate(topic.partitions):
        if partition.leader != NO_LEADER and (partition.elr or partition.last_known_elr):
            after = partition._replace(elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1)
            yield partition_record(topic.topic_id, index, after)
