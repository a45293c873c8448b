"""A node that is a cluster of its own: a quorum of one, without peers.

It offers what `ClusterRuntime` offers, made of simpler parts: registering needs no other node, the lease has no end
(no other node can become leader), and there is no other node to hand leadership to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemark.broker.cluster.identity import NodeIdentity, random_id
from tidemark.broker.cluster.kafka_adoption import adopt_topics
from tidemark.broker.cluster.metadata_directory import MetadataDirectory
from tidemark.broker.cluster.placements import Place, Placements
from tidemark.broker.cluster.view import ClusterView
from tidemark.broker.config import BrokerConfig, Listener
from tidemark.broker.metadata import directories
from tidemark.broker.metadata.features import SUPPORTED, new_cluster
from tidemark.broker.metadata.image import Image, partition_record
from tidemark.broker.metadata.min_isr import write_cluster_value
from tidemark.broker.metadata.producer_ids import reserve
from tidemark.broker.metadata.records import Endpoint, FeatureRange, Record, RegisterBrokerRecord
from tidemark.broker.metadata.store import MetadataStore
from tidemark.broker.replication.replicas import Replicas
from tidemark.broker.server.dispatch import Dispatcher
from tidemark.broker.server.server import Server

Services = dict[str, Callable[[], Any]]
Guarded = Callable[[Listener, Dispatcher], Callable[[Any, bytearray], None]]


class StandaloneRuntime:
    forwarding = None

    def __init__(
        self,
        config: BrokerConfig,
        directory: Path,
        *,
        identity: NodeIdentity,
        replicas: Replicas,
        endpoints: Callable[[], Sequence[Endpoint]],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._config = config
        self._identity = identity
        self._replicas = replicas
        self._endpoints = endpoints
        self._metadata_directory = MetadataDirectory(directory)
        self.store = MetadataStore(directory, node_id=config.node_id, failed=failed)
        self.placements = Placements(
            replicas.table, may_tell=lambda: directories.may_write(self.store.image), tell=self._tell_placements
        )
        replicas.roles.placed = self.placements.note
        self.view = ClusterView(self.store, node_id=config.node_id)

    def services(self) -> Services:
        return {"quorum": lambda: None}

    async def join(self, _server: Server, _services: Mapping[str, Callable[[], Any]], _guarded: Guarded) -> None:
        """Returns when this broker is registered. Topics that Kafka left on the disks are taken over first."""
        await self.store.start()
        if self.store.is_new:
            await adopt_topics(self.store, self._replicas.table.directories, node_id=self._config.node_id)
        await self.store.change(self._registration)
        self._metadata_directory.forget_first_records()

    def _registration(self, image: Image) -> list[Record]:
        registration = RegisterBrokerRecord(
            broker_id=self._config.node_id,
            broker_epoch=self.store.next_index,
            rack=self._config.broker_rack,
            endpoints=list(self._endpoints()),
            log_dirs=[each.id for each in self._replicas.table.directories],
            features=[
                FeatureRange(name=name, min_version=low, max_version=high) for name, (low, high) in SUPPORTED.items()
            ],
        )
        records: list[Record] = [registration, *write_cluster_value(image, self._config)]
        if not image.cluster_id:
            more = self._metadata_directory.first_records
            return [*new_cluster(self._identity.cluster_id or random_id(), more), *records]
        return records

    def start_replication(self) -> None:
        """No leader to follow, and no followers."""

    async def unfence(self) -> None:
        """A broker that registers with itself is never fenced."""

    async def leave(self) -> None:
        """No other node could lead in this one's place."""

    @property
    def broker_epoch(self) -> int:
        """No controller asks how the last run of this node ended."""
        return -1

    async def allocate_producer_ids(self) -> int:
        return await reserve(self.store)

    async def _tell_placements(self, found: Mapping[bytes, Sequence[Place]]) -> None:
        def decide(image: Image) -> list[Record]:
            places = ((directory, place) for directory, each in found.items() for place in each)
            return [record for directory, place in places for record in self._placed(image, directory, place)]

        await self.store.change(decide)

    def _placed(self, image: Image, directory: bytes, place: Place) -> list[Record]:
        topic_id, index = place
        topic = image.topic_by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            return []
        after = directories.assign(
            image, topic, index, self._config, broker_id=self._config.node_id, directory=directory
        )
        return [] if after is topic.partitions[index] else [partition_record(topic_id, index, after)]

    async def close(self) -> None:
        await self.placements.close()
        await self.store.close()
