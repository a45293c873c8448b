"""The cluster as one immutable value: what the metadata log adds up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from broker.metadata.records import (
    ConfigRecord,
    Endpoint,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

TOPIC_RESOURCE: Final = 2  # Kafka's ConfigResource.Type
BROKER_RESOURCE: Final = 4
GROUP_RESOURCE: Final = 32
CLUSTER_DEFAULT: Final = ""  # the BROKER resource without a name: every broker's dynamic default

NO_CONFIG: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    broker_id: int
    broker_epoch: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionImage:
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """Every mapping here is replaced, never changed: a reader may keep an image as long as it likes."""

    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), NO_CONFIG)

    def apply(self, records: Iterable[Record]) -> Image:
        draft = _Draft(self)
        for record in records:
            _FOLD[type(record)](draft, record)
        return draft.finish()

    def records(self) -> Iterator[Record]:
        """The shortest log that adds up to this image: a snapshot."""
        for broker in self.brokers.values():
            yield RegisterBrokerRecord(
                broker_id=broker.broker_id,
                broker_epoch=broker.broker_epoch,
                rack=broker.rack,
                endpoints=list(broker.endpoints.values()),
            )
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, partition in enumerate(topic.partitions):
                yield partition_record(topic.topic_id, index, partition)
        for (resource_type, resource_name), values in self.configs.items():
            for name, value in values.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        yield ProducerIdsRecord(next_producer_id=self.next_producer_id)


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )


class _Draft:
    """The next image while records are folded in: mappings are copied once, topics grow as lists."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self.brokers = dict(base.brokers)
        self.topics = dict(base.topics)
        self.topic_names = dict(base.topic_names)
        self.configs = dict(base.configs)
        self.next_producer_id = base.next_producer_id
        self.partitions: dict[str, list[PartitionImage]] = {}

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            rack=record.rack,
            endpoints={endpoint.name: endpoint for endpoint in record.endpoints},
        )

    def add_topic(self, record: TopicRecord) -> None:
        self.topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self.topic_names[record.topic_id] = record.name

    def set_partition(self, record: PartitionRecord) -> None:
        name = self.topic_names[record.topic_id]
        partitions = self.partitions.setdefault(name, list(self.topics[name].partitions))
        partition = PartitionImage(
            replicas=tuple(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )
        if record.partition_id == len(partitions):
            partitions.append(partition)
        else:
            partitions[record.partition_id] = partition

    def remove_topic(self, record: RemoveTopicRecord) -> None:
        name = self.topic_names.pop(record.topic_id)
        del self.topics[name]
        self.partitions.pop(name, None)
        self.configs.pop((TOPIC_RESOURCE, name), None)

    def set_config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = dict(self.configs.get(key, NO_CONFIG))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.configs[key] = values
        else:
            self.configs.pop(key, None)

    def set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def finish(self) -> Image:
        for name, partitions in self.partitions.items():
            self.topics[name] = replace(self.topics[name], partitions=tuple(partitions))
        return Image(
            brokers=self.brokers,
            topics=self.topics,
            topic_names=self.topic_names,
            configs=self.configs,
            next_producer_id=self.next_producer_id,
        )


_FOLD: Final[dict[type[Any], Callable[[_Draft, Any], None]]] = {
    RegisterBrokerRecord: _Draft.register_broker,
    TopicRecord: _Draft.add_topic,
    PartitionRecord: _Draft.set_partition,
    RemoveTopicRecord: _Draft.remove_topic,
    ConfigRecord: _Draft.set_config,
    ProducerIdsRecord: _Draft.set_producer_ids,
}
