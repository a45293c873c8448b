"""The cluster as one immutable value: what the metadata log adds up to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tidemark.broker.core.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from tidemark.broker.core.sliced_work import Job
from tidemark.broker.metadata.acl_index import AclIndex
from tidemark.broker.metadata.client_quotas import NO_QUOTAS, ClientQuotas, Entity, apply_record, records_of
from tidemark.broker.metadata.credentials import NO_CREDENTIALS, CredentialRecord, Credentials
from tidemark.broker.metadata.records import (
    AccessControlEntryRecord,
    BrokerStateRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    DelegationTokenRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveDelegationTokenRecord,
    RemoveScramCredentialRecord,
    RemoveTopicRecord,
    ScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

TOPIC_RESOURCE: Final = 2  # Kafka's ConfigResource.Type
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
CLUSTER_DEFAULT: Final = ""  # the BROKER resource without a name: every broker's dynamic default

NO_LEADER: Final = -1
RECOVERED: Final = 0  # Kafka's LeaderRecoveryState
RECOVERING: Final = 1  # after an unclean election, until the leader has recovered

UNASSIGNED: Final = bytes(16)  # the id of no directory: the broker has not said yet where its replica is

NO_CONFIG: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    broker_id: int
    broker_epoch: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]
    incarnation_id: bytes = bytes(16)
    fenced: bool = False
    in_controlled_shutdown: bool = False
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # (lowest, highest level it can do)
    log_dirs: tuple[bytes, ...] = ()  # the ids of its log directories that work; empty: not known

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.fenced and not self.in_controlled_shutdown


class PartitionImage(NamedTuple):
    """A tuple, because there are so many of them: thousands change when a broker dies, and a tuple is made in a fifth
    of the time that a frozen dataclass takes."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int  # NO_LEADER: no replica may lead it for now
    leader_epoch: int  # grows with every change of the leader
    partition_epoch: int  # grows with every change at all
    elr: tuple[int, ...] = ()  # not in sync, yet hold everything committed: eligible leaders (KIP-966)
    last_known_elr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()  # of a reassignment under way; they are among `replicas`
    removing: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    directories: tuple[bytes, ...] = ()  # the log directory of each replica, in their order; empty: not known

    def directory_of(self, broker_id: int) -> bytes:
        """In which of its log directories a broker has its replica (KIP-858)."""
        if not self.directories or broker_id not in self.replicas:
            return UNASSIGNED
        return self.directories[self.replicas.index(broker_id)]


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
    features: Mapping[str, int] = field(default_factory=dict)  # the level the cluster has agreed on
    next_producer_id: int = 0
    cluster_id: str = ""
    credentials: Credentials = NO_CREDENTIALS
    acls: AclIndex = field(default_factory=AclIndex)
    client_quotas: ClientQuotas = field(default_factory=lambda: NO_QUOTAS)

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def config_of(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.configs.get((resource_type, name), NO_CONFIG)

    def partition(self, topic_id: bytes, index: int) -> PartitionImage | None:
        topic = self.topic_by_id(topic_id)
        return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None

    def is_active(self, broker_id: int) -> bool:
        """Whether this broker may lead, and be in sync."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_online(self, broker_id: int, partition: PartitionImage) -> bool:
        """Whether the log directory works in which this broker has its replica, as far as is known."""
        directory = partition.directory_of(broker_id)
        if directory == UNASSIGNED:
            return True
        broker = self.brokers.get(broker_id)
        return broker is None or not broker.log_dirs or directory in broker.log_dirs

    def apply(self, records: Iterable[Record]) -> Image:
        draft = _Draft(self)
        for record in records:
            _FOLD[type(record)](draft, record)
        return draft.finish()

    def apply_in_slices(self, records: Iterable[Record]) -> Job[Image]:
        """As `apply`, for very many records: others have their turn in between."""
        draft = _Draft(self)
        for record in records:
            _FOLD[type(record)](draft, record)
            yield
        return draft.finish()

    def records(self) -> Iterator[Record]:
        """The shortest log that adds up to this image: a snapshot."""
        yield ClusterRecord(cluster_id=self.cluster_id)
        for broker in self.brokers.values():
            yield broker_record(broker)
        for topic in self.topics.values():
            yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
            for index, partition in enumerate(topic.partitions):
                yield partition_record(topic.topic_id, index, partition)
        for (resource_type, resource_name), values in self.configs.items():
            for name, value in values.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
        for name, level in self.features.items():
            yield FeatureLevelRecord(name=name, level=level)
        yield ProducerIdsRecord(next_producer_id=self.next_producer_id)
        yield from self.credentials.records()
        for acl in self.acls:
            yield acl_record(acl)
        yield from records_of(self.client_quotas)


def acl_record(acl: Acl, *, removed: bool = False) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
        removed=removed,
    )


def broker_record(broker: BrokerImage) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        rack=broker.rack,
        endpoints=list(broker.endpoints.values()),
        incarnation_id=broker.incarnation_id,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        features=[
            FeatureRange(name=name, min_version=low, max_version=high) for name, (low, high) in broker.features.items()
        ],
        log_dirs=list(broker.log_dirs),
    )


def partition_record(topic_id: bytes, index: int, partition: PartitionImage) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        elr=list(partition.elr),
        last_known_elr=list(partition.last_known_elr),
        adding=list(partition.adding),
        removing=list(partition.removing),
        leader_recovery_state=partition.leader_recovery_state,
        directories=list(partition.directories),
    )


class _Draft:
    """The next image while records are folded in. What a record changes is copied once; the rest stays shared."""

    def __init__(self, base: Image) -> None:
        self.base = base
        self._topics: dict[str, TopicImage] | None = None
        self._topic_names: dict[bytes, str] | None = None
        self._brokers: dict[int, BrokerImage] | None = None
        self._configs: dict[tuple[int, str], Mapping[str, str]] | None = None
        self._features: dict[str, int] | None = None
        self.next_producer_id = base.next_producer_id
        self.cluster_id = base.cluster_id
        self.credentials = base.credentials
        self.partitions: dict[str, list[PartitionImage]] = {}
        self._acls: dict[Acl, bool] = {}  # whether it is there from now on
        self._client_quotas: dict[Entity, Mapping[str, float]] | None = None

    @property
    def topics(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self.base.topics)
        return self._topics

    @property
    def topic_names(self) -> dict[bytes, str]:
        if self._topic_names is None:
            self._topic_names = dict(self.base.topic_names)
        return self._topic_names

    @property
    def brokers(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self.base.brokers)
        return self._brokers

    @property
    def configs(self) -> dict[tuple[int, str], Mapping[str, str]]:
        if self._configs is None:
            self._configs = dict(self.base.configs)
        return self._configs

    def set_cluster(self, record: ClusterRecord) -> None:
        self.cluster_id = record.cluster_id

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(
            broker_id=record.broker_id,
            broker_epoch=record.broker_epoch,
            rack=record.rack,
            endpoints={endpoint.name: endpoint for endpoint in record.endpoints},
            incarnation_id=bytes(record.incarnation_id),
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            features={each.name: (each.min_version, each.max_version) for each in record.features},
            log_dirs=tuple(map(bytes, record.log_dirs)),
        )

    def set_broker_state(self, record: BrokerStateRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is not None and broker.broker_epoch == record.broker_epoch:
            self.brokers[record.broker_id] = replace(
                broker, fenced=record.fenced, in_controlled_shutdown=record.in_controlled_shutdown
            )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def set_feature(self, record: FeatureLevelRecord) -> None:
        if self._features is None:
            self._features = dict(self.base.features)
        self._features[record.name] = record.level

    def add_topic(self, record: TopicRecord) -> None:
        self.topics[record.name] = TopicImage(name=record.name, topic_id=record.topic_id)
        self.topic_names[record.topic_id] = record.name

    def set_partition(self, record: PartitionRecord) -> None:
        names = self.base.topic_names if self._topic_names is None else self._topic_names
        name = names[record.topic_id]
        partitions = self.partitions.get(name)
        if partitions is None:
            partitions = self.partitions[name] = list(self.topics[name].partitions)
        partition = PartitionImage(
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            tuple(record.elr),
            tuple(record.last_known_elr),
            tuple(record.adding),
            tuple(record.removing),
            record.leader_recovery_state,
            tuple(map(bytes, record.directories)),
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

    def set_acl(self, record: AccessControlEntryRecord) -> None:
        acl = Acl(
            ResourceType(record.resource_type),
            record.resource_name,
            PatternType(record.pattern_type),
            record.principal,
            record.host,
            AclOperation(record.operation),
            Permission(record.permission_type),
        )
        self._acls[acl] = not record.removed

    def _next_acls(self) -> AclIndex:
        if not self._acls:
            return self.base.acls
        added = [acl for acl, stays in self._acls.items() if stays]
        return self.base.acls.changed(added=added, removed=[acl for acl, stays in self._acls.items() if not stays])

    def set_client_quota(self, record: ClientQuotaRecord) -> None:
        if self._client_quotas is None:
            self._client_quotas = dict(self.base.client_quotas)
        apply_record(self._client_quotas, record)

    def set_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def change_credentials(self, record: CredentialRecord) -> None:
        self.credentials = self.credentials.apply(record)

    def finish(self) -> Image:
        for name, partitions in self.partitions.items():
            self.topics[name] = replace(self.topics[name], partitions=tuple(partitions))
        base = self.base
        return Image(
            brokers=base.brokers if self._brokers is None else self._brokers,
            topics=base.topics if self._topics is None else self._topics,
            topic_names=base.topic_names if self._topic_names is None else self._topic_names,
            configs=base.configs if self._configs is None else self._configs,
            features=base.features if self._features is None else self._features,
            next_producer_id=self.next_producer_id,
            cluster_id=self.cluster_id,
            credentials=self.credentials,
            acls=self._next_acls(),
            client_quotas=base.client_quotas if self._client_quotas is None else self._client_quotas,
        )


_FOLD: Final[dict[type[Any], Callable[[_Draft, Any], None]]] = {
    RegisterBrokerRecord: _Draft.register_broker,
    TopicRecord: _Draft.add_topic,
    PartitionRecord: _Draft.set_partition,
    RemoveTopicRecord: _Draft.remove_topic,
    ConfigRecord: _Draft.set_config,
    ProducerIdsRecord: _Draft.set_producer_ids,
    BrokerStateRecord: _Draft.set_broker_state,
    UnregisterBrokerRecord: _Draft.unregister_broker,
    FeatureLevelRecord: _Draft.set_feature,
    ClusterRecord: _Draft.set_cluster,
    ScramCredentialRecord: _Draft.change_credentials,
    RemoveScramCredentialRecord: _Draft.change_credentials,
    DelegationTokenRecord: _Draft.change_credentials,
    RemoveDelegationTokenRecord: _Draft.change_credentials,
    AccessControlEntryRecord: _Draft.set_acl,
    ClientQuotaRecord: _Draft.set_client_quota,
}
